"""Code that the handlers of the transaction APIs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fairlead_broker.api_registry import PENDING, Pending
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.api_registry import RequestContext

_Answer = TypeVar("_Answer")


class ParkedTransaction(Generic[_Answer]):
    """A request that the coordinator answers, in the same call or later.

    A transition that is under way goes on when the connection closes.
    """

    __slots__ = ("_build", "_context")

    def __init__(self, context: RequestContext, build: Callable[[_Answer], Any]) -> None:
        self._context: RequestContext | None = context
        self._build = build

    def park(self) -> Pending:
        """Wait, unless the answer came at once; for a handler to return."""
        if self._context is not None:
            self._context.parked = self
        return PENDING

    def answer(self, answer: _Answer) -> None:
        """Send what the coordinator has answered."""
        context, self._context = self._context, None
        if context is not None:
            context.respond(self._build(answer))

    def cancel(self) -> None:
        """Forget the connection, which is gone."""
        self._context = None


def told_in(context: RequestContext, code: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """Return a code as this version knows it, and count it; PRODUCER_FENCED is KIP-588's."""
    if code is ErrorCode.PRODUCER_FENCED and context.version < fenced_since:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code is not ErrorCode.NONE:
        context.broker.metrics.errors[code.name] += 1
    return code
