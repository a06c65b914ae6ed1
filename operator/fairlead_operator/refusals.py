"""What the API server refuses until a person changes something, and what that person can do.

A refusal ends neither a pass nor the report about the cluster: what can be done is done, and the
rest is named in the conditions. Every other failure ends the pass, which is tried again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from fairlead_kube.errors import ApiError

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
UNPROCESSABLE: Final = 422
_LASTING: Final = frozenset({BAD_REQUEST, FORBIDDEN, UNPROCESSABLE})
"""Answers that stay the same until a person acts: roles, quotas, admission, conflicting fields."""
_UNDECLARED: Final = "not declared in schema"
_WEBHOOK: Final = "webhook"
_LASTING_WORDS: Final = (_UNDECLARED, "typed patch object", _WEBHOOK)
"""Words in answers with status 500 that will be the same next time."""

ALREADY_EXISTS: Final = 409
PartKey = tuple[str, str]
"""Kind and name of a part of a cluster."""


class OtherOwnerError(ApiError):
    """An object has the name of one that `owner` needs, but another owner: it is left alone.

    `owner` is a kind and a name, such as `LogCluster demo`.
    """

    def __init__(self, kind: str, name: str, owner: str) -> None:
        super().__init__(
            ALREADY_EXISTS,
            "AlreadyExists",
            f"{kind} {name} was there before {owner}, which needs one of that name, "
            "and is left as it is: delete it, or create it under another name",
        )


@dataclass(slots=True)
class Refusals:
    """The refusals of one pass."""

    by_part: dict[PartKey, str] = field(default_factory=dict)
    """The server's answer for each part, and what to do."""

    @contextmanager
    def noting(self, kind: str, name: str) -> Iterator[None]:
        """Record a refusal by the API server inside this context; raise all other errors."""
        try:
            yield
        except ApiError as error:
            if not is_refusal(error):
                raise
            self.by_part[kind, name] = describe_refusal(kind, name, error)

    @property
    def text(self) -> str:
        """Return the first refusal, and how many more there are; empty if there is none."""
        texts = list(self.by_part.values())
        if not texts:
            return ""
        return texts[0] + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")


def is_refusal(error: ApiError) -> bool:
    """Tell whether a request gets the same answer until a person changes something."""
    if error.status in _LASTING or isinstance(error, OtherOwnerError):
        return True
    return error.status >= 500 and any(word in error.message for word in _LASTING_WORDS)


def describe_refusal(kind: str, name: str, error: ApiError) -> str:
    """Say which part of a cluster the API server refuses, why, and what to do."""
    if isinstance(error, OtherOwnerError):
        return error.message
    return f"the API server refuses {kind} {name}: {error.message}{_advice(error)}"


def _advice(error: ApiError) -> str:
    if "nodePort" in error.message:
        return "; give the listener another nodePortBase, or none, which chooses free ports"
    if "ipFamil" in error.message:
        return (
            "; Kubernetes has not both families, or the Service began with another one: correct "
            "spec.ipFamilyPolicy and spec.ipFamilies of the LogCluster, or those of the listener"
        )
    if _UNDECLARED in error.message:
        return "; Pods have no such field: correct spec.template of the BrokerPool"
    if _WEBHOOK in error.message:
        return "; look at the admission webhook that it names"
    if error.status == FORBIDDEN:
        return "; look at the operator's roles and at the namespace's quotas"
    return ""
