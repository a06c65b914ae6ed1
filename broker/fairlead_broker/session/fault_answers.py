"""Answers the controller's `fault` messages, then has the fault carried out.

The answer is sent first: after a kill the process cannot send it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import MessageType, SessionProtocolError

if TYPE_CHECKING:
    from fairlead_broker.session.link import Link

logger = logging.getLogger(__name__)


class FaultTarget(Protocol):
    """Carries out faults on this process.

    `turns` are the milliseconds that a slow process stands still, and those that it then runs.
    """

    def refusal(self, fault: str, duration_ms: int, turns: tuple[int, int]) -> str:
        """Return why the fault cannot be carried out; empty if it can."""
        ...

    def carry_out(self, fault: str, duration_ms: int, turns: tuple[int, int]) -> None:
        """Do what was not refused."""
        ...


class FaultAnswers:
    """One task for each fault, because the answer has to be sent before the fault."""

    def __init__(self, target: FaultTarget | None) -> None:
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(self, link: Link, message: dict[str, Any]) -> None:
        """Take a `fault` message; SessionProtocolError if it is malformed."""
        number, fault = message.get("id"), message.get("fault")
        duration_ms = message.get("duration_ms", 0)
        if not isinstance(number, int) or not isinstance(fault, str):
            raise SessionProtocolError("bad fault message")
        turns = (message.get("stall_ms", 0), message.get("run_ms", 0))
        if not all(isinstance(number_ms, int) for number_ms in (duration_ms, *turns)):
            raise SessionProtocolError("bad duration in a fault message")
        task = asyncio.create_task(self._answer(link, number, fault, duration_ms, turns))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    async def _answer(
        self, link: Link, number: int, fault: str, duration_ms: int, turns: tuple[int, int]
    ) -> None:
        target = self._target
        error = "this broker takes no faults"
        if target is not None:
            error = target.refusal(fault, duration_ms, turns)
        await link.deliver(pack_message(MessageType.FAULT_REPLY, id=number, error=error))
        if target is None or error:
            logger.warning("refused the fault %r for a drill: %s", fault[:40], error)
            return
        logger.warning("a drill asks for the fault %r (%d ms)", fault, duration_ms)
        target.carry_out(fault, duration_ms, turns)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a fault was not carried out: %s: %s", type(error).__name__, error)
