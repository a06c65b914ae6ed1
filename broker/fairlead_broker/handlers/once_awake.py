"""Requests to a coordinator wait while this broker does not know whether it still coordinates.

A broker that was stopped and woke answers such requests as soon as the controller has been heard:
out of its memory if it still coordinates, with NOT_COORDINATOR if another broker does. Until then
it would tell members that all is well in a group that has gone on without it.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, TypeVar

from fairlead_broker.api_registry import NO_REPLY, PENDING, Pending
from fairlead_broker.limits import HELD_REQUEST_OVERHEAD_BYTES
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.api_registry import RequestContext

logger = logging.getLogger(__name__)

_Request = TypeVar("_Request", bound=Message)
_Reply = TypeVar("_Reply")


def once_awake(
    handler: Callable[[_Request, RequestContext], _Reply],
) -> Callable[[_Request, RequestContext], _Reply | Pending]:
    """Have the decorated handler called when this broker knows what it coordinates.

    Not for handlers that borrow the frame.
    """

    @functools.wraps(handler)
    def handle(request: _Request, context: RequestContext) -> _Reply | Pending:
        if context.broker.wake_check.must_hold():
            return _hold(handle, request, context)
        return handler(request, context)

    return handle


def handle_now(
    handler: Callable[[_Request, RequestContext], object],
    request: _Request,
    context: RequestContext,
) -> None:
    """Handle a request that was kept, as if it came now."""
    try:
        outcome = handler(request, context)
    except RemoteProtocolError as error:
        context.close_connection(str(error))
        return
    except Exception as error:
        logger.exception("a request that waited could not be handled")
        context.close_connection(f"a request that waited failed: {error}")
        return
    if outcome is not PENDING and outcome is not NO_REPLY:
        context.respond(outcome)


class _Held:
    """One waiting request; it is dropped if its connection closes before."""

    __slots__ = ("_go_on",)

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on: Callable[[], None] | None = go_on

    def go_on(self) -> None:
        if self._go_on is not None:
            self._go_on()

    def cancel(self) -> None:
        self._go_on = None


def _hold(
    handler: Callable[[_Request, RequestContext], object],
    request: _Request,
    context: RequestContext,
) -> Pending:
    held = _Held(lambda: handle_now(handler, request, context))
    size = HELD_REQUEST_OVERHEAD_BYTES + sum(map(len, request.encode(context.version)))
    if context.broker.wake_check.hold(held.go_on, size):
        context.parked = held
    else:
        # Its client connects again, and has waited long enough by then.
        context.close_connection("too many requests wait until this broker is known to lead")
    return PENDING
