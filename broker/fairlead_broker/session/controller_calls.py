"""Admin requests of clients on their way to the controller.

Every broker takes them and forwards them over its session; the controller's answer comes back
slot by slot. What fails as a whole (no controller, time-out) is one `KafkaError` for all slots.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_broker.limits import ADMIN_TIMEOUT_MS_MAX, SLOTS_PER_CALL_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from fairlead_broker.session.registered_broker import RegisteredBroker
    from fairlead_model.session.calls import Method


class SlotAnswers(NamedTuple):
    """What became of the slots of a request that went to the controller in parts."""

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
    timeout_ms = min(max(timeout_ms, 1), ADMIN_TIMEOUT_MS_MAX)
    reply = await broker.controller.call(method, dict(body), timeout_ms=timeout_ms)
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
        left_ms = int(1000 * (deadline - clock()))
        try:
            if answers and left_ms < 1:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no time was left for this one")
            reply = await ask_controller(broker, method, part, timeout_ms=left_ms)
        except KafkaError as error:
            return SlotAnswers(answers, asked[first:], error, throttle_time_ms)
        answers += reply[slots]
        throttle_time_ms = reply.get("throttle_time_ms", 0)
    return SlotAnswers(answers, throttle_time_ms=throttle_time_ms)


def error_code(number: int) -> ErrorCode:
    """Return the code that a number of the controller's reply stands for."""
    return ErrorCode(number)  # type: ignore[call-arg]


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
