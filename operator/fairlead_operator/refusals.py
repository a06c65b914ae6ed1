"""What the API server refuses until a person changes something, and what that person can do.

A refusal ends neither a pass nor what is said about the cluster: what can be done is done, and the
rest is named in the conditions. Everything else that goes wrong ends the pass and is tried again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from fairlead_controller.kube.errors import ApiError

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
UNPROCESSABLE: Final = 422
_LASTING: Final = frozenset({BAD_REQUEST, FORBIDDEN, UNPROCESSABLE})
"""Answers that come again: roles, quotas, admission, fields that clash or do not exist."""
_UNDECLARED: Final = "not declared in schema"
_WEBHOOK: Final = "webhook"
_LASTING_WORDS: Final = (_UNDECLARED, "typed patch object", _WEBHOOK)
"""Of answers that call themselves the server's own trouble (500), and come again all the same."""

PartKey = tuple[str, str]
"""Kind and name of a part of a cluster."""


@dataclass(slots=True)
class Refusals:
    """The refusals of one pass."""

    by_part: dict[PartKey, str] = field(default_factory=dict)
    """What the server said of each part, and what to do."""

    @contextmanager
    def noting(self, kind: str, name: str) -> Iterator[None]:
        """Take down a refusal of what is done inside about a part; other errors go on."""
        try:
            yield
        except ApiError as error:
            if not is_refusal(error):
                raise
            self.by_part[kind, name] = describe_refusal(kind, name, error)

    @property
    def text(self) -> str:
        """The first refusal, and how many more there are; empty if there is none."""
        texts = list(self.by_part.values())
        if not texts:
            return ""
        return texts[0] + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")


def is_refusal(error: ApiError) -> bool:
    """Tell whether the same request gets the same answer until somebody changes something."""
    if error.status in _LASTING:
        return True
    return error.status >= 500 and any(word in error.message for word in _LASTING_WORDS)


def describe_refusal(kind: str, name: str, error: ApiError) -> str:
    """Say which part of a cluster the API server refuses, why, and what to do."""
    return f"the API server refuses {kind} {name}: {error.message}{_advice(error)}"


def _advice(error: ApiError) -> str:
    if "nodePort" in error.message:
        return "; give the listener another nodePortBase, or none, which chooses free ports"
    if _UNDECLARED in error.message:
        return "; Pods have no such field: correct spec.template of the BrokerPool"
    if _WEBHOOK in error.message:
        return "; look at the admission webhook that it names"
    if error.status == FORBIDDEN:
        return "; look at the operator's roles and at the namespace's quotas"
    return ""
