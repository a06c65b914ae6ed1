"""One timer for the deadlines of all groups and of all appends.

A heartbeat or a commit sets no timer: it moves a deadline away, which is found out when the old one
comes.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import GROUP_TIMER_MS, HOUSEKEEPING_SLICE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.clock import Clock
    from fairlead_broker.group.coordinated_group import CoordinatedGroup

_STALE_ENTRIES_MIN: Final = 64


class GroupTimer:
    """Calls `tick` with each group whose deadline has come, and `expire` with the time.

    `expire` answers when it wants to be called again. An entry of the heap counts only while its
    group has that very deadline as `scheduled_ms`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        tick: Callable[[CoordinatedGroup], None],
        expire: Callable[[int], int | None],
    ) -> None:
        self._clock = clock
        self._tick = tick
        self._expire = expire
        self._deadlines: list[tuple[int, int, CoordinatedGroup]] = []
        self._compact_at = _STALE_ENTRIES_MIN
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def schedule(self, group: CoordinatedGroup) -> None:
        """See to it that the group is told when its next deadline has come."""
        deadline_ms = group.classic.next_deadline_ms()
        scheduled_ms = group.scheduled_ms
        if deadline_ms is None or (scheduled_ms is not None and scheduled_ms <= deadline_ms):
            return
        group.scheduled_ms = deadline_ms
        self._sequence += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._sequence, group))
        if len(self._deadlines) > self._compact_at:
            self._forget_stale()
        self.set(deadline_ms)

    def set(self, deadline_ms: int) -> None:
        """Look again at this time, or earlier."""
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), GROUP_TIMER_MS)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_time)

    def stop(self) -> None:
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
            deadline_ms, _, group = heapq.heappop(self._deadlines)
            if group.scheduled_ms == deadline_ms and not group.is_gone:
                group.scheduled_ms = None
                self._tick(group)
                now_ms = self._clock.monotonic_ms()
        if self._deadlines:
            self.set(self._deadlines[0][0])
        deadline = self._expire(now_ms)
        if deadline is not None:
            self.set(deadline)

    def _forget_stale(self) -> None:
        """Drop entries of groups that are gone or have an earlier one: they would pile up."""
        self._deadlines = [
            entry
            for entry in self._deadlines
            if entry[2].scheduled_ms == entry[0] and not entry[2].is_gone
        ]
        heapq.heapify(self._deadlines)
        self._compact_at = 2 * len(self._deadlines) + _STALE_ENTRIES_MIN
