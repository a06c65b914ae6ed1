"""Rounds of work at an interval, each guarded: one that fails is logged and counted, and the next
one runs all the same."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fairlead_broker.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

SLEEP_MS_MAX = 24 * 3600 * 1000
"""Intervals may be "never" (2^63 - 1 ms), which no timer takes."""


async def run_periodically(
    name: str,
    round_of_work: Callable[[], Awaitable[None]],
    *,
    interval_ms: int,
    first_delay_ms: int | None = None,
    metrics: BrokerMetrics,
) -> None:
    """Until cancelled: wait, work, again. The interval counts from the end of a round."""
    delay_ms = interval_ms if first_delay_ms is None else min(first_delay_ms, interval_ms)
    while True:
        await asyncio.sleep(min(delay_ms, SLEEP_MS_MAX) / 1000)
        delay_ms = interval_ms
        try:
            await round_of_work()
        except Exception:
            metrics.task_failures += 1
            logger.exception("a round of %s failed", name)
