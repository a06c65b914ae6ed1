"""Compacts the logs of topics with `cleanup.policy=compact`, the dirtiest first, one at a time.

Leaders and followers compact independently. The child process does the work; this module decides
which logs are due, and puts finished segments in place. A log that is truncated, loses segments or
leaves this broker meanwhile is given up until the next round. A log whose cleaning fails waits
longer each time, see `cleaning_retries`. Logs with a damaged batch, and logs for whose old and new
files together the disk has no room, are also logged and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS
from fairlead_broker.log import full_disk
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.compaction.cleaner_worker import NonsenseError, decode_group, decode_report
from fairlead_broker.log.compaction.cleaning_plan import plan_cleaning
from fairlead_broker.log.compaction.cleaning_state import LogCleaner, log_facts, maybe_roll
from fairlead_broker.log.compaction.log_cleaning import NoRoomError
from fairlead_broker.log.recovery.leftovers import discard_cleaned
from fairlead_broker.log.segment_swap import SegmentSwap
from fairlead_broker.tasks.cleaner_process import CleanerDiedError, CleanerProcess
from fairlead_broker.tasks.cleaning_retries import CleaningRetries

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from typing import Any

    from fairlead_broker.broker import Broker
    from fairlead_broker.log.compaction.cleaning_plan import CleaningPlan
    from fairlead_broker.log.compaction.log_cleaning import CleanedGroup, CleaningReport
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)


class _Choice(NamedTuple):
    partition: Partition
    plan: CleaningPlan


class Cleaner:
    """`clean_all` is a round for `run_periodically`."""

    def __init__(self, broker: Broker, executor: Executor) -> None:
        self._broker = broker
        self._executor = executor
        self._process = CleanerProcess(executor)
        self._retries: CleaningRetries[Partition] = CleaningRetries()

    async def clean_all(self) -> None:
        """Compact whatever is due, then let the child go."""
        given_up: set[Partition] = set()
        self._forget_departed()
        try:
            while (choice := await self._choose(given_up)) is not None:
                if not await self._clean(choice):
                    given_up.add(choice.partition)
        finally:
            # Nothing is left to do, or this broker stops; an idle child would only take memory.
            await self._process.kill()

    async def _choose(self, given_up: set[Partition]) -> _Choice | None:
        """Return the log that gains most; those that have waited too long come first."""
        clock, best = self._broker.clock, None
        best_rank = (False, -1.0)
        deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        dirty_ratio_max = 0.0
        for partition in list(self._broker.partitions.values()):
            if partition not in given_up:
                plan = self._plan(partition)
                if plan is not None:
                    dirty_ratio_max = max(dirty_ratio_max, plan.dirty_ratio)
                    rank = (plan.is_overdue, plan.dirty_ratio)
                    if rank > best_rank:
                        best, best_rank = _Choice(partition, plan), rank
            if clock.monotonic_ms() >= deadline_ms:
                await asyncio.sleep(0)
                deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        self._broker.metrics.cleaner.dirty_ratio_max = dirty_ratio_max
        return best

    def _plan(self, partition: Partition) -> CleaningPlan | None:
        log = partition.log
        if not log.is_compacted or log.refusal is not None:
            return None
        if not self._retries.may_try(partition, log.config, self._broker.clock.monotonic_ms()):
            return None
        now_ms = self._broker.clock.now_ms()
        try:
            if maybe_roll(log, now_ms) and self._broker.on_moved is not None:
                # The flusher makes the segment durable, and with that fit for compaction.
                self._broker.on_moved([partition])
            facts = log_facts(
                log, partition.last_stable_offset, high_watermark=partition.high_watermark
            )
        except CorruptSegmentError as error:
            self._mark_uncleanable(partition, str(error))
            return None
        except OSError as error:
            full_disk.refuse(log, error)
            self._broker.on_partition_offline(partition)
            return None
        return plan_cleaning(facts, log.config, now_ms)

    async def _clean(self, choice: _Choice) -> bool:
        """Clean one log; return False if it was given up."""
        partition, broker = choice.partition, self._broker
        log, metrics = partition.log, broker.metrics.cleaner
        cleaner = LogCleaner(log, choice.plan)
        try:
            cleaner.check_room()
        except (NoRoomError, OSError) as error:
            self._note_no_room(partition, str(error))
            return False
        limits = broker.settings.cleaner_limits(broker.running_values())
        order = cleaner.order(
            broker.clock.now_ms(),
            dedupe_buffer_bytes=limits.dedupe_buffer_bytes,
            io_bytes_per_second=limits.io_bytes_per_second,
        )
        began_ms = broker.clock.monotonic_ms()
        metrics.is_running = 1
        try:
            async with contextlib.aclosing(self._process.run(order)) as messages:
                async for message in messages:
                    if "uncleanable" in message and cleaner.is_valid:
                        self._mark_uncleanable(partition, message["uncleanable"])
                        break
                    if not await self._heed(message, partition, cleaner):
                        break
                    if "report" in message:
                        metrics.last_run_ms = broker.clock.monotonic_ms() - began_ms
                        return True
        except (CleanerDiedError, NonsenseError) as error:
            if cleaner.is_valid:
                self._note_failure(partition, str(error))
        finally:
            metrics.is_running = 0
            self._settle(partition)
        await self._give_up(partition)
        return False

    async def _heed(
        self, message: dict[str, Any], partition: Partition, cleaner: LogCleaner
    ) -> bool:
        """Act on what the child says; False if this cleaning has come to nothing."""
        if not cleaner.is_valid:
            # Errors count for nothing then: the child may have missed files that are gone.
            logger.info("compaction of %s is given up: its log has changed", partition)
            return False
        if "error" in message:
            self._note_failure(partition, str(message["error"]))
            return False
        if "no_room" in message:
            self._note_no_room(partition, str(message["no_room"]))
            return False
        if "group" in message:
            return await self._put_in_place(partition, cleaner, decode_group(message["group"]))
        if "report" in message:
            self._complete(partition, cleaner, decode_report(message["report"]))
        return True

    async def _put_in_place(
        self, partition: Partition, cleaner: LogCleaner, group: CleanedGroup
    ) -> bool:
        """Replace segments by the new one; False if they are not the log's any more."""
        if not cleaner.may_replace(group):
            return False
        log, loop = partition.log, asyncio.get_running_loop()
        swap = SegmentSwap(log, group)
        try:
            forgotten = swap.forget_snapshots()
            if forgotten is not None:
                await loop.run_in_executor(self._executor, forgotten.run)
                if not cleaner.may_replace(group):
                    return False
            begun = swap.begin()
        except OSError as error:
            # Nothing has changed: a disk without room for a name is no reason to stop serving.
            self._note_failure(partition, str(error))
            return False
        try:
            await loop.run_in_executor(self._executor, begun.run)
            job = swap.replace(self._broker.clock.now_ms())
            if job is None:
                return False
            await loop.run_in_executor(self._executor, job.run)
            swap.finish()
        except OSError as error:
            if not log.is_closed:
                log.go_offline(error)
                self._broker.on_partition_offline(partition)
            return False
        return True

    def _complete(self, partition: Partition, cleaner: LogCleaner, report: CleaningReport) -> None:
        cleaner.complete(report)
        counts, metrics = report.counts, self._broker.metrics.cleaner
        if self._retries.note_success(partition):
            self._count_failures()
            logger.info("%s is compacted again", partition)
        metrics.runs += 1
        metrics.read_bytes += report.read_bytes
        metrics.written_bytes += report.written_bytes
        metrics.records_removed += counts.records_removed
        metrics.null_keys_removed += counts.null_keys
        logger.info(
            "compacted %s up to offset %d: %d bytes, %d keys, %d of %d records removed",
            partition,
            report.end_offset,
            report.source_bytes,
            report.keys,
            counts.records_removed,
            counts.records_removed + counts.records_kept,
        )
        if counts.null_keys:
            logger.warning(
                "%s held %d records without a key, from a time when it was not compacted;"
                " they are removed",
                partition,
                counts.null_keys,
            )

    def _settle(self, partition: Partition) -> None:
        """After a stop in the middle of a replacement."""
        log = partition.log
        if log.swap is None or log.is_offline:
            return
        try:
            log.settle_swap()
        except OSError as error:
            log.go_offline(error)
            self._broker.on_partition_offline(partition)

    async def _give_up(self, partition: Partition) -> None:
        """Remove what the child has written, once it writes no more."""
        await self._process.kill()
        log = partition.log
        if log.refusal is None:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._executor, discard_cleaned, log.disk, log.path)
            except OSError as error:
                # The next cleaning, or the next start, removes them.
                logger.warning("files of a compaction of %s are left: %s", partition, error)

    def _note_failure(self, partition: Partition, reason: str) -> None:
        self._broker.metrics.cleaner.failures += 1
        wait_ms = self._retries.note_failure(
            partition, partition.log.config, self._broker.clock.monotonic_ms()
        )
        self._count_failures()
        logger.warning(
            "compaction of %s failed, again in %d seconds: %s", partition, wait_ms / 1000, reason
        )

    def _note_no_room(self, partition: Partition, reason: str) -> None:
        wait_ms, is_news = self._retries.note_no_room(
            partition, partition.log.config, self._broker.clock.monotonic_ms()
        )
        self._count_failures()
        logger.log(
            logging.WARNING if is_news else logging.DEBUG,
            "%s is not compacted, and so grows, until its disk has room; looked at every %d"
            " seconds: %s",
            partition,
            wait_ms / 1000,
            reason,
        )

    def _mark_uncleanable(self, partition: Partition, reason: str) -> None:
        wait_ms = self._retries.note_failure(
            partition,
            partition.log.config,
            self._broker.clock.monotonic_ms(),
            is_uncleanable=True,
        )
        self._count_failures()
        logger.error(
            "%s cannot be compacted, and so grows; tried again in %d seconds, or when its topic's"
            " settings change: %s",
            partition,
            wait_ms / 1000,
            reason,
        )

    def _forget_departed(self) -> None:
        self._retries.keep_only(
            {each for each in self._broker.partitions.values() if each.log.is_compacted}
        )
        self._count_failures()

    def _count_failures(self) -> None:
        metrics = self._broker.metrics.cleaner
        metrics.uncleanable = self._retries.uncleanable
        metrics.without_room = self._retries.without_room
