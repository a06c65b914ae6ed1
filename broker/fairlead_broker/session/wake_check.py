"""Holds acknowledgements back when this process finds that it was stopped for too long.

The shell of `replication.wake_guard`: it watches the clocks, asks the controller, and lets what was
held go on when the guard opens.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import HELD_PRODUCE_BYTES_MAX
from fairlead_broker.replication.wake_guard import PATIENCE_MS, WakeGuard
from fairlead_model.session.calls import ConfirmDeletionsCall, Method
from fairlead_model.session.session_protocol import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.session.registered_broker import RegisteredBroker

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 0.1


class WakeCheck:
    """`_held` are produces with acks=0 or 1 that go on, in order, when the guard has opened."""

    def __init__(self, broker: RegisteredBroker) -> None:
        clock = broker.clock
        self._broker = broker
        self._clock = clock
        self._guard = WakeGuard(
            gap_max_ms=SESSION_TIMEOUT_MS - HEARTBEAT_INTERVAL_MS,
            monotonic_ms=clock.monotonic_ms(),
            wall_ms=clock.now_ms(),
        )
        self._held: list[Callable[[], None]] = []
        self._held_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def go_on(self) -> None:
        """Note that the process before this one was killed, and that this one goes on for it."""
        self._guard.close(self._clock.monotonic_ms())
        self._on_woken()

    def must_hold(self) -> bool:
        """Tell whether acks=0 and acks=1 must wait now. Asked before each of them."""
        monotonic_ms = self._clock.monotonic_ms()
        if self._guard.note_time(monotonic_ms=monotonic_ms, wall_ms=self._clock.now_ms()):
            self._on_woken()
        # Who comes while others are still held waits behind them: a connection keeps its order.
        return self._guard.is_closed(monotonic_ms) or bool(self._held)

    def hold(self, go_on: Callable[[], None], size: int) -> bool:
        """Call `go_on` when the guard opens; False if too much waits already."""
        if self._held_bytes + size > HELD_PRODUCE_BYTES_MAX:
            return False
        self._held_bytes += size
        self._held.append(go_on)
        return True

    async def run(self) -> None:
        """Until cancelled: look at the clocks, so that a gap is one of the whole process."""
        while True:
            # What the controller said when this broker registered, as soon as it has.
            self._guard.gap_max_ms = self._broker.controller.longest_stop_ms
            self.must_hold()
            await asyncio.sleep(LOOK_INTERVAL_S)

    def stop(self) -> None:
        """Ask nobody any more; what is held is never answered, its clients ask elsewhere."""
        for task in self._tasks:
            task.cancel()

    def _on_woken(self) -> None:
        logger.warning("this process stood still: acks=0 and acks=1 wait until it is known to lead")
        task = asyncio.get_running_loop().create_task(self._ask(self._guard.question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, question: int) -> None:
        """Any answer will do: whatever the controller decided before it has arrived by then."""
        asked_ms = self._clock.monotonic_ms()
        try:
            await self._broker.controller.call(
                Method.CONFIRM_DELETIONS,
                dict(ConfirmDeletionsCall(topic_ids=[])),
                timeout_ms=PATIENCE_MS,
            )
            await self._broker.replicas.settled()
            self._guard.confirmed(question)
        except KafkaError as error:
            logger.warning("nobody says whether this broker still leads: %s", error.message)
            left_ms = PATIENCE_MS - (self._clock.monotonic_ms() - asked_ms)
            await asyncio.sleep(max(left_ms, 0) / 1000)
        if not self._guard.is_closed(self._clock.monotonic_ms()):
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        self._held_bytes = 0
        for go_on in held:
            try:
                go_on()
            except Exception:
                logger.exception("a produce that was held could not be handled")
