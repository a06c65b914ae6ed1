"""One timer for all deadlines of a coordinator, and of its appends.

A heartbeat or a commit sets no timer: it only moves a deadline, which is noticed when the old one
comes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from fairlead_broker.limits import (
    COORDINATOR_TIMER_MS,
    FAILED_DEADLINE_MS,
    HOUSEKEEPING_SLICE_MS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.clock import Clock

logger = logging.getLogger(__name__)

_STALE_ENTRIES_MIN: Final = 64


class Timed(Protocol):
    """Something with deadlines, as a group is, or a transaction.

    `scheduled_ms` is the deadline that the timer has for it, or None; only the timer sets it.
    `is_gone` is true once its deadlines do not matter any more.
    """

    scheduled_ms: int | None
    is_gone: bool

    def next_deadline_ms(self) -> int | None:
        """Return its next deadline."""


TimedT = TypeVar("TimedT", bound=Timed)


class DeadlineTimer(Generic[TimedT]):
    """Calls `tick` with each object whose deadline has come, and `expire` with the time.

    `expire` returns when it has to be called again. An entry of the heap counts only while its
    object has the same deadline as `scheduled_ms`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        tick: Callable[[TimedT], None],
        expire: Callable[[int], int | None],
    ) -> None:
        self._clock = clock
        self._tick = tick
        self._expire = expire
        self._deadlines: list[tuple[int, int, TimedT]] = []
        self._compact_at = _STALE_ENTRIES_MIN
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def schedule(self, timed: TimedT) -> None:
        """Have `tick` called when the next deadline has come."""
        deadline_ms = timed.next_deadline_ms()
        scheduled_ms = timed.scheduled_ms
        if deadline_ms is None or (scheduled_ms is not None and scheduled_ms <= deadline_ms):
            return
        timed.scheduled_ms = deadline_ms
        self._sequence += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._sequence, timed))
        if len(self._deadlines) > self._compact_at:
            self._forget_stale()
        self.set(deadline_ms)

    def set(self, deadline_ms: int) -> None:
        """Have `expire` called at this time or earlier."""
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), COORDINATOR_TIMER_MS)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_time)

    def stop(self) -> None:
        """Forget all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.clear()

    def _on_time(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        slice_end_ms = now_ms + HOUSEKEEPING_SLICE_MS
        # After a failover the sessions of thousands of groups end at the same time: in slices.
        while self._deadlines and self._deadlines[0][0] <= now_ms < slice_end_ms:
            deadline_ms, _, timed = heapq.heappop(self._deadlines)
            if timed.scheduled_ms == deadline_ms and not timed.is_gone:
                timed.scheduled_ms = None
                try:
                    self._tick(timed)
                except Exception:
                    # A defect in one of them must not stop the deadlines of all others.
                    logger.exception("the deadline of %s could not be met", timed)
                    self._look_again(timed, now_ms + FAILED_DEADLINE_MS)
                now_ms = self._clock.monotonic_ms()
        if self._deadlines:
            self.set(self._deadlines[0][0])
        deadline = self._expire(now_ms)
        if deadline is not None:
            self.set(deadline)

    def _look_again(self, timed: TimedT, deadline_ms: int) -> None:
        timed.scheduled_ms = deadline_ms
        self._sequence += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._sequence, timed))

    def _forget_stale(self) -> None:
        """Drop entries of objects that are gone or have an earlier entry: they would pile up."""
        self._deadlines = [
            entry
            for entry in self._deadlines
            if entry[2].scheduled_ms == entry[0] and not entry[2].is_gone
        ]
        heapq.heapify(self._deadlines)
        self._compact_at = 2 * len(self._deadlines) + _STALE_ENTRIES_MIN
