"""Admin requests of clients on their way to the controller.

Every broker takes them and forwards them over its session; the controller's answer comes back slot
by slot. A failure of the whole call (no controller, time-out) is one `KafkaError` for all slots.

Where a controller goes away before it answers, its successor is asked again, as in Kafka, if that
cannot make another answer of the same request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.limits import ADMIN_TIMEOUT_MS_MAX, SLOTS_PER_CALL_MAX
from fairlead_broker.session.controller_session import CallLostError
from fairlead_model.session.calls import ElectionType, Method
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from fairlead_broker.session.registered_broker import RegisteredBroker

_REPEATABLE: Final = frozenset(
    {
        Method.ALTER_CLIENT_QUOTAS,
        Method.ALTER_CONFIGS,
        Method.CREATE_ACLS,
        Method.LIST_PARTITION_REASSIGNMENTS,
        Method.UPDATE_FEATURES,
    }
)
"""Calls whose repetition has the same answer. Others (such as the creation of a topic) would answer
that the topic exists already. Kafka's clients get that answer; here they learn that the outcome is
unknown."""
SUCCESSOR_PAUSE_S: Final = 0.05
"""Before a controller that is stopping is asked again: its session may last a moment longer."""


LOST_CALLS_MAX: Final = 2
"""A call over which so many sessions end may itself be the reason."""


class SlotAnswers(NamedTuple):
    """The results of a request that went to the controller in parts."""

    answers: list[Any]
    unanswered: Sequence[Any] = ()
    error: KafkaError | None = None
    """Why the unanswered slots have no answer."""
    throttle_time_ms: int = 0
    """How long a quota holds the client back, as the controller said last."""


async def ask_controller(
    broker: RegisteredBroker, method: Method, body: Mapping[str, Any], *, timeout_ms: int
) -> dict[str, Any]:
    """Forward one call and wait within the client's time-out; KafkaError if there is no answer."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + min(max(timeout_ms, 1), ADMIN_TIMEOUT_MS_MAX) / 1000
    lost_count = 0
    while True:
        left_ms = max(round(1000 * (deadline - clock())), 1)
        try:
            reply = await broker.controller.call(method, dict(body), timeout_ms=left_ms)
            break
        except KafkaError as error:
            lost_count += isinstance(error, CallLostError)
            is_gone = isinstance(error, CallLostError) or error.code is ErrorCode.NOT_CONTROLLER
            if lost_count > LOST_CALLS_MAX:
                raise
            is_time_left = clock() + SUCCESSOR_PAUSE_S < deadline
            if not (is_gone and is_time_left and _is_repeatable(method, body)):
                raise
            await asyncio.sleep(SUCCESSOR_PAUSE_S)
    # The image is here before the reply is; what it asks of this broker shall be done, too.
    await broker.replicas.settled()
    return reply


async def ask_in_parts(
    broker: RegisteredBroker,
    method: Method,
    body: Mapping[str, Any],
    slots: str,
    *,
    timeout_ms: int,
) -> SlotAnswers:
    """Forward a call whose field `slots` is a list, in parts.

    The controller decides one part at a time: thousands at once would keep it from its brokers for
    longer than their sessions last. The client's time-out is for all parts. If one has no answer,
    those behind it are not sent.
    """
    asked: Sequence[Any] = body[slots]
    answers: list[Any] = []
    throttle_time_ms = 0
    clock = asyncio.get_running_loop().time
    deadline = clock() + min(max(timeout_ms, 1), ADMIN_TIMEOUT_MS_MAX) / 1000
    for first in range(0, len(asked), SLOTS_PER_CALL_MAX):
        part = {**body, slots: asked[first : first + SLOTS_PER_CALL_MAX]}
        left_ms = round(1000 * (deadline - clock()))
        try:
            if answers and left_ms < 1:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no time was left for this one")
            reply = await ask_controller(broker, method, part, timeout_ms=left_ms)
        except KafkaError as error:
            return SlotAnswers(answers, asked[first:], error, throttle_time_ms)
        answers += reply[slots]
        throttle_time_ms = reply.get("throttle_time_ms", 0)
    return SlotAnswers(answers, throttle_time_ms=throttle_time_ms)


def _is_repeatable(method: Method, body: Mapping[str, Any]) -> bool:
    if method is Method.ALTER_PARTITION_REASSIGNMENTS:
        # The second cancellation finds nothing to call back.
        return all(each["replicas"] is not None for each in body["partitions"])
    if method is Method.ELECT_LEADERS:
        # "Leads already" means the same; the loss of an unclean election is reported once.
        return bool(body["election_type"] == ElectionType.PREFERRED)
    return method in _REPEATABLE


def error_code(number: int) -> ErrorCode:
    """Return the code that a number of the controller's reply stands for."""
    return ErrorCode(number)


def slot_error(answer: Mapping[str, Any]) -> tuple[ErrorCode, str | None]:
    """Return code and message of one slot of the controller's reply."""
    return error_code(answer["error_code"]), answer["error_message"]


def repeated(names: Iterable[Hashable]) -> set[Hashable]:
    """Return what a request names more than once: Kafka refuses each of those."""
    seen: set[Hashable] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]


def repetition_error(what: str) -> KafkaError:
    """Return the refusal for something named twice in one request."""
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{what} is named more than once in the request")
