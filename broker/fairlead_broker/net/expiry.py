"""One timer for the deadlines of everything that is parked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import PURGATORY_TIMER_MS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from fairlead_broker.clock import Clock
    from fairlead_broker.replication.purgatory import Operation, Purgatory


class ExpiryTimer:
    """Calls `expire` of each purgatory when its next deadline has come.

    Most operations complete long before their deadline; the timer then fires for nothing once and
    moves on to the next. It is set anew only when something earlier is parked.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        purgatories: Sequence[Purgatory],
        on_fault: Callable[[Operation], None] | None = None,
    ) -> None:
        """Mind these; `on_fault` is told of what raises while it waits there."""
        self._loop = loop
        self._clock = clock
        self._purgatories = purgatories
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_ms = 0
        for purgatory in purgatories:
            purgatory.on_earlier_deadline = self._set
            purgatory.on_fault = on_fault

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for purgatory in self._purgatories:
            purgatory.on_earlier_deadline = None

    def _set(self, deadline_ms: int) -> None:
        if self._timer is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._deadline_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), PURGATORY_TIMER_MS)
        self._timer = self._loop.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for purgatory in self._purgatories:
            purgatory.expire(now_ms)
        for purgatory in self._purgatories:
            deadline_ms = purgatory.next_deadline_ms()
            if deadline_ms is not None:
                self._set(deadline_ms)
