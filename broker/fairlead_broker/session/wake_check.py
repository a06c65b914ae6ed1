"""Holds requests back when this process finds that it was stopped for too long.

The shell of `replication.wake_guard`: it watches the clocks, asks the controller, and lets what was
held go on when the guard opens.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import HELD_REQUEST_BYTES_MAX
from fairlead_broker.replication.wake_guard import PATIENCE_MS, WakeGuard
from fairlead_model.session.calls import ConfirmDeletionsCall, Method
from fairlead_model.session.session_protocol import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.session.registered_broker import RegisteredBroker

logger = logging.getLogger(__name__)

LOOK_INTERVAL_MS: Final = 100


class WakeCheck:
    """`_held` are requests that go on, in order, when the guard has opened.

    They are produces with acks=0 or 1, and what the coordinators of this broker are asked.
    """

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
        self._looked_ms = clock.monotonic_ms()
        self._tasks: set[asyncio.Task[None]] = set()

    def go_on(self) -> None:
        """Note that the process before this one was killed, and that this one goes on for it."""
        self._guard.close(self._clock.monotonic_ms())
        self._on_woken()

    def must_hold(self) -> bool:
        """Tell whether requests of these kinds must wait now. Asked before each of them."""
        # A request that arrives while others are held waits behind them: a connection keeps its
        # order.
        return self._guard.is_closed(self._look()) or bool(self._held)

    def awake_ms(self) -> int:
        """Return the monotonic time of coordinators, which waits with their requests."""
        monotonic_ms = self._clock.monotonic_ms()
        if monotonic_ms - self._looked_ms > LOOK_INTERVAL_MS:
            self._look()
            self._guard.is_closed(monotonic_ms)  # Opens it if it has been closed for long enough.
        return self._guard.awake_ms(monotonic_ms)

    def stands_still(self) -> bool:
        """Tell whether that time waits now."""
        monotonic_ms = self._look()
        return self._guard.is_closed(monotonic_ms) or self._guard.stands_still(monotonic_ms)

    def _look(self) -> int:
        """Return the time, and begin to ask if it shows that this process was stopped."""
        monotonic_ms = self._clock.monotonic_ms()
        self._looked_ms = monotonic_ms
        if self._guard.note_time(monotonic_ms=monotonic_ms, wall_ms=self._clock.now_ms()):
            self._on_woken()
        return monotonic_ms

    def hold(self, go_on: Callable[[], None], size: int) -> bool:
        """Call `go_on` when the guard opens; False if too much waits already."""
        if self._held_bytes + size > HELD_REQUEST_BYTES_MAX:
            return False
        self._held_bytes += size
        self._held.append(go_on)
        return True

    async def run(self) -> None:
        """Until cancelled: look at the clocks, so that a gap is one of the whole process."""
        while True:
            self.follow_session()
            if not self._guard.is_closed(self._look()):
                self._release()  # Usually nothing is held any more: the answer has released it.
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)

    def follow_session(self) -> None:
        """Go by what the controller said when this broker registered, as soon as it has."""
        self._guard.gap_max_ms = self._broker.controller.longest_stop_ms

    def stop(self) -> None:
        """Stop asking; held requests are never answered, and their clients ask another broker."""
        for task in self._tasks:
            task.cancel()

    def _on_woken(self) -> None:
        logger.warning(
            "this process stood still: acks=0, acks=1 and what its coordinators are asked wait "
            "until it is known to lead"
        )
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
            self._guard.confirmed(question, self._clock.monotonic_ms())
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
                logger.exception("a request that was held could not be handled")
