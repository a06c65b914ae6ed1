"""What the kubectl plugin adds to a refusal of the API server."""

import pytest

from fairlead_cli.kubectl.access import explain_api_error
from fairlead_kube.errors import ApiError


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ApiError(403, "Forbidden", "no"), "fairlead-view"),
        (
            ApiError(404, "NotFound", "the server could not find the requested resource"),
            "not installed",
        ),
        (
            ApiError(404, "NotFound", 'logclusters.fairlead.io "demo" not found'),
            "kubectl get fairlead -A",
        ),
    ],
)
def test_a_refusal_says_what_to_do_next(error: ApiError, hint: str) -> None:
    explained = explain_api_error(error)
    assert error.message in explained.message
    assert explained.hint is not None
    assert hint in explained.hint
