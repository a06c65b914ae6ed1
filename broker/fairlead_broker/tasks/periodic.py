"""Rounds of work at an interval.

Each is guarded: one that fails is logged and counted, and the next one runs all the same. An
interval that is a config may change meanwhile, also while a round is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fairlead_broker.measures.broker_metrics import BrokerMetrics

logger = logging.getLogger(__name__)

SLEEP_MS_MAX = 24 * 3600 * 1000
"""Intervals may be "never" (2^63 - 1 ms), which no timer takes."""


class Interval:
    """The time between two rounds; `changed` has who waits for it look again."""

    def __init__(self, read_ms: Callable[[], int]) -> None:
        self.read_ms = read_ms
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Take note that it is another one."""
        self._changed.set()

    async def wait(self, longest_ms: int | None = None) -> None:
        """Return when it is over, counted from now, or after `longest_ms` if that is less."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            self._changed.clear()
            delay_ms = min(self.read_ms(), SLEEP_MS_MAX)
            if longest_ms is not None:
                delay_ms = min(delay_ms, longest_ms)
            left_s = began + delay_ms / 1000 - clock()
            if left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()


async def run_periodically(
    name: str,
    round_of_work: Callable[[], Awaitable[None]],
    *,
    interval: Interval,
    first_delay_ms: int | None = None,
    metrics: BrokerMetrics,
) -> None:
    """Until cancelled: wait, work, again. The interval counts from the end of a round."""
    longest_ms = first_delay_ms
    while True:
        await interval.wait(longest_ms)
        longest_ms = None
        try:
            await round_of_work()
        except Exception:
            metrics.task_failures += 1
            logger.exception("a round of %s failed", name)
