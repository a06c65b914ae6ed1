"""What the kubectl plugin adds to a refusal of the API server."""

import re

import pytest

from fairlead_cli.kubectl.access import explain_api_error
from fairlead_kube.errors import ApiError
from fairlead_operator.resources.permissions import build_user_roles


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


def test_the_role_that_is_said_to_create_drills_may_do_so() -> None:
    hint = explain_api_error(ApiError(403, "Forbidden", "no")).hint
    assert hint is not None
    (role,) = re.findall(r"(fairlead-\w+)\) to create drills", hint)
    creators = {
        each["metadata"]["name"]
        for each in build_user_roles()
        for rule in each["rules"]
        if "failoverdrills" in rule["resources"] and "create" in rule["verbs"]
    }
    assert creators == {role}
