"""Measures how late the event loop runs, because every time-out of a controller runs on it."""

import asyncio
from collections import deque
from typing import Final

INTERVAL_S: Final = 0.25
WINDOW: Final = 240
"""Number of measurements that count: one minute of them."""


class LoopLag:
    """The measurement of one event loop."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=WINDOW)

    @property
    def longest_s(self) -> float:
        """The longest delay in the last minute."""
        return max(self._lags, default=0.0)

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self._lags.append(max(0.0, loop.time() - due))
