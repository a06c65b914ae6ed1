"""How late the event loop runs: a timer's lateness is what every request waits for, too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairlead_broker.measures.broker_metrics import BrokerMetrics

TICK_S: Final = 0.25
TICKS_A_PERIOD: Final = 120
"""The worst lag is that of the current period of 30 s and of the one before."""


class LoopLagMeter:
    """Sets `loop_lag_ms` and `loop_lag_max_ms` four times a second.

    The maximum looks back for half a minute to a minute, so that an alert on it ends.
    """

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._period_max_ms = 0
        self._before_max_ms = 0

    def start(self) -> None:
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        due = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        lag_ms = int((self._loop.time() - due) * 1000)
        self._metrics.loop_lag_ms = lag_ms
        self._period_max_ms = max(self._period_max_ms, lag_ms)
        self._metrics.loop_lag_max_ms = max(self._period_max_ms, self._before_max_ms)
        self._ticks += 1
        if self._ticks % TICKS_A_PERIOD == 0:
            self._before_max_ms, self._period_max_ms = self._period_max_ms, 0
        self._schedule()
