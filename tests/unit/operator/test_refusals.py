"""What of the API server's answers is a refusal that a person has to hear of."""

import pytest

from fairlead_kube.errors import ApiError
from fairlead_operator.refusals import Refusals, describe_refusal, is_refusal

UNDECLARED = ".spec.template.spec.affinity.foo: field not declared in schema"


def refused(refusals: Refusals, kind: str, name: str, error: ApiError) -> None:
    """Refuse to write an object; whoever writes goes on."""
    with refusals.noting(kind, name):
        raise error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ApiError(422, "Invalid", "spec: Forbidden: updates to statefulset spec"), True),
        (ApiError(403, "Forbidden", "exceeded quota"), True),
        (ApiError(422, "Invalid", "spec.ipFamilies[0]: Invalid value: IPv6"), True),
        (ApiError(400, "BadRequest", "strict decoding error"), True),
        (ApiError(500, "", f"failed to create typed patch object (a/b): {UNDECLARED}"), True),
        (ApiError(500, "InternalError", 'failed calling webhook "check.example.com": EOF'), True),
        (ApiError(500, "", "etcdserver: leader changed"), False),
        (ApiError(503, "ServiceUnavailable", "apiserver is shutting down"), False),
        (ApiError(429, "TooManyRequests", ""), False),
        (ApiError(409, "Conflict", "the object has been modified"), False),
        (ApiError(404, "NotFound", ""), False),
    ],
)
def test_what_comes_again_until_somebody_acts_is_a_refusal(error: ApiError, expected: bool) -> None:
    assert is_refusal(error) is expected


def test_refusals_are_noted_and_everything_else_goes_on() -> None:
    refusals = Refusals()
    refused(refusals, "StatefulSet", "demo-main", ApiError(500, "", UNDECLARED))
    refused(refusals, "Service", "demo-outside", ApiError(403, "Forbidden", "no"))
    assert refusals.text.startswith("the API server refuses StatefulSet demo-main: .spec.template")
    assert "correct spec.template of the BrokerPool" in refusals.text
    assert refusals.text.endswith("(and 1 more)")
    assert set(refusals.by_part) == {("StatefulSet", "demo-main"), ("Service", "demo-outside")}
    with pytest.raises(ApiError), refusals.noting("Service", "a"):
        raise ApiError(503, "ServiceUnavailable", "")
    assert len(refusals.by_part) == 2


@pytest.mark.parametrize(
    "said",
    [
        'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured',
        'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster',
    ],
)
def test_families_that_kubernetes_has_not_are_told_with_what_to_correct(said: str) -> None:
    text = describe_refusal("Service", "demo-brokers", ApiError(422, "Invalid", said))
    assert said in text
    assert "spec.ipFamilies of the LogCluster" in text
