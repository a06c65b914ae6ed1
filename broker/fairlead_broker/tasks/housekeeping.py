"""What ages: segments past their retention, files past their grace, producers past their silence.

Walks all partitions in slices of a few milliseconds; the blocking part (unlinking) is done in
threads.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from concurrent.futures import Executor

    from fairlead_broker.broker import Broker
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)

FIRST_RETENTION_DELAY_MS: Final = 30_000
DELETION_INTERVAL_MS: Final = 1_000
PRODUCER_EXPIRY_INTERVAL_MS: Final = 600_000


class Housekeeping:
    """Rounds for `run_periodically`."""

    def __init__(self, broker: Broker, executor: Executor) -> None:
        self._broker = broker
        self._executor = executor

    async def apply_retention(self) -> None:
        """Delete what retention and DeleteRecords allow; followers only what leaders deleted."""
        now_ms = self._broker.clock.now_ms()
        self._broker.metrics.traffic.keep_only({topic for topic, _ in self._broker.partitions})
        async for partition in self._walk():
            log = partition.log
            if partition.is_leader:
                count = log.delete_expired_segments(now_ms, partition.high_watermark)
            else:
                count = log.delete_segments_below_start(now_ms, partition.high_watermark)
            if count:
                partition.start_moved()
                self._broker.metrics.segments_deleted += count
                logger.info(
                    "deleted %d segments of %s: it starts at offset %d now",
                    count,
                    partition,
                    partition.log_start_offset,
                )

    async def unlink_deleted(self) -> None:
        """Remove files and directories whose grace is over."""
        now_ms = self._broker.clock.now_ms()
        loop = asyncio.get_running_loop()
        async for partition in self._walk():
            log = partition.log
            job = log.deletions.begin(log.disk, now_ms)
            if job is not None:
                await loop.run_in_executor(self._executor, job.run)
        removal = self._broker.log_directory.begin_removals(now_ms)
        if removal is not None:
            await loop.run_in_executor(self._executor, removal.run)

    async def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        now_ms = self._broker.clock.now_ms()
        async for partition in self._walk():
            log = partition.log
            log.producers.expire(now_ms, log.config.producer_id_expiration_ms)

    async def _walk(self) -> AsyncIterator[Partition]:
        """Every partition that is still here, giving way to others now and then."""
        clock = self._broker.clock
        deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        for key in list(self._broker.partitions):
            partition = self._broker.partitions.get(key)
            if partition is not None:
                yield partition
            if clock.monotonic_ms() >= deadline_ms:
                await asyncio.sleep(0)
                deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
