"""Removes what has expired: old segments, deleted files, idle producers.

And what else is seen to now and then: averages of what flows through partitions, which are of the
last minutes, and logs that are offline without anybody's having said so.

Walks all partitions in slices of a few milliseconds; the blocking part (unlinking) is done in
threads.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import (
    HOUSEKEEPING_SLICE_MS,
    PRODUCERS_MAX,
    SEGMENTS_DELETED_A_TURN,
)
from fairlead_broker.log.producers.producer_bound import idle_producers_a_log
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from concurrent.futures import Executor

    from fairlead_broker.broker import Broker
    from fairlead_broker.disk import Disk
    from fairlead_broker.log.files.deletions import Deletions
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)

FIRST_RETENTION_DELAY_MS: Final = 30_000
DELETION_INTERVAL_MS: Final = 1_000
PRODUCER_EXPIRY_INTERVAL_MS: Final = 600_000
PRODUCER_BOUND_INTERVAL_MS: Final = 10_000
FLOW_INTERVAL_MS: Final = 10_000
OFFLINE_INTERVAL_MS: Final = 1_000


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
            try:
                count = await self._delete_segments(partition, now_ms)
            except KafkaError:
                # Its disk has failed; the logs behind it are looked at all the same.
                self._report_offline(partition)
                continue
            if count:
                logger.info(
                    "deleted %d segments of %s: it starts at offset %d now",
                    count,
                    partition,
                    partition.log_start_offset,
                )

    async def _delete_segments(self, partition: Partition, now_ms: int) -> int:
        """All that may go, some in a turn of the loop; how many went. KafkaError if the disk fails.

        A log may have lost its shorter retention's worth of segments at once: thousands.
        """
        deleted = 0
        while partition.log.refusal is None or partition.log.lacks_room:
            if partition.is_leader:
                count = partition.log.delete_expired_segments(now_ms, partition.last_stable_offset)
            else:
                count = partition.log.delete_segments_below_start(now_ms, partition.high_watermark)
            if count:
                partition.start_moved()
                self._broker.metrics.segments_deleted += count
                deleted += count
            if count < SEGMENTS_DELETED_A_TURN:
                break
            await asyncio.sleep(0)
        return deleted

    def _report_offline(self, partition: Partition) -> None:
        """Perhaps no producer appends to it and finds out."""
        self._broker.on_partition_offline(partition)
        if self._broker.on_moved is not None:
            # The flusher has the rest of the disk looked at.
            self._broker.on_moved([partition])

    async def unlink_deleted(self) -> None:
        """Remove files and directories whose grace is over; what the disk keeps is tried again."""
        now_ms = self._broker.clock.now_ms()
        refused_count = 0
        async for partition in self._walk():
            log = partition.log
            await self._remove_due(log.deletions, log.disk, log.path, now_ms)
            refused_count += log.deletions.refused_count
        for directory in self._broker.log_directories.live:
            await self._remove_due(directory.removals, directory.disk, directory.path, now_ms)
            refused_count += directory.removals.refused_count
        self._broker.metrics.undeleted = refused_count

    async def _remove_due(self, deletions: Deletions, disk: Disk, path: str, now_ms: int) -> None:
        job = deletions.begin(disk, now_ms)
        if job is None:
            return
        await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
        refusal = deletions.complete(job, now_ms)
        if refusal is not None:
            logger.error(
                "%s: %d deleted files or directories cannot be removed and take up room,"
                " again in %d seconds: %s",
                path,
                refusal.paths,
                refusal.wait_ms / 1000,
                refusal.error,
            )

    async def report_offline(self) -> None:
        """Find logs whose disk failed without an append: in a read, or in a checkpoint.

        Otherwise such a replica would lead, or seem to follow, until the next start.
        """
        failed = self._broker.replicas.failed
        async for partition in self._walk():
            if partition.log.is_offline and (partition.topic, partition.index) not in failed:
                self._report_offline(partition)

    async def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        now_ms = self._broker.clock.now_ms()
        async for partition in self._walk():
            log = partition.log
            log.producers.expire(now_ms, log.config.producer_id_expiration_ms)

    async def bound_producers(self) -> None:
        """Forget idle producers where all logs together remember more than PRODUCERS_MAX.

        A client may name as many producer ids as it likes, in each partition that it may write to:
        ids that have written, and ids that a coordinator was asked about for nothing.
        """
        counts: list[int] = []
        open_count = 0
        async for partition in self._walk():
            producers = partition.log.producers
            counts += (producers.idle_count, producers.verification_count)
            open_count += len(producers) - producers.idle_count
        if sum(counts) + open_count <= PRODUCERS_MAX:
            return
        # A tenth below, so that this is not done for a few each time.
        bound = idle_producers_a_log(counts, PRODUCERS_MAX * 9 // 10 - open_count)
        forgotten = 0
        async for partition in self._walk():
            producers = partition.log.producers
            forgotten += producers.keep_idle(bound) + producers.keep_verifications(bound)
        logger.warning(
            "logs remembered more than %d producers: %d that were silent longest are forgotten, and"
            " a log keeps %d; a batch that one of these repeats would be written twice",
            PRODUCERS_MAX,
            forgotten,
            bound,
        )

    async def sample_flows(self) -> None:
        """Average what flows through the partitions that are led here."""
        now_ms = self._broker.clock.monotonic_ms()
        async for partition in self._walk():
            partition.flow.sample(now_ms, is_leader=partition.is_leader)

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
