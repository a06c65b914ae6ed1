"""Brings appended bytes to the disk: early write-out, and the flushes that settings ask for.

Only logs that were appended to since the last round are looked at. Nothing here blocks the loop:
write-out and fsync run in threads. Requests that wait for a flush (`flush.messages`) are checked
through the partition when it is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import FLUSHES_AT_ONCE_MAX
from fairlead_broker.log import flush
from fairlead_broker.replication.committable import awaits_flush
from fairlead_model.configs.log_config import NEVER
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from fairlead_broker.broker import Broker
    from fairlead_broker.log.directory.log_directory import LogDirectory
    from fairlead_broker.log.flush import FlushJob, WriteOutJob
    from fairlead_broker.log.log import Log
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)

ROUND_S: Final = 0.1
EPOCH_FILES_A_ROUND: Final = 32
"""Each costs the loop half a millisecond: a sixth of its time while many wait."""


class Flusher:
    """`_dirty` are partitions whose log may need a write-out or a flush; it empties when idle.

    `_unwritten` are those whose epoch file lags behind, oldest first.
    """

    def __init__(
        self,
        broker: Broker,
        executor: Executor,
        *,
        on_offline: Callable[[Partition], None],
        on_disk_error: Callable[[str], None],
    ) -> None:
        """`on_offline` is called with partitions whose log was found offline, perhaps repeatedly.

        `on_disk_error` is told the path of a directory some names of which are not durable.
        """
        self._broker = broker
        self._executor = executor
        self._on_offline = on_offline
        self._on_disk_error = on_disk_error
        self._dirty: dict[Partition, None] = {}
        self._unwritten: dict[Partition, None] = {}
        self._has_work = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._flushes: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(FLUSHES_AT_ONCE_MAX)

    def note(self, partitions: Sequence[Partition]) -> None:
        """Note partitions that have moved, most by an append."""
        for partition in partitions:
            self._dirty[partition] = None
            if partition.log.epochs.is_dirty:
                self._unwritten[partition] = None
            if awaits_flush(partition.log):
                # A producer waits for it: don't wait for the next round.
                self._is_urgent.set()
        self._has_work.set()

    async def run(self) -> None:
        """Until cancelled; sleeps while nothing is appended anywhere."""
        while True:
            await self._has_work.wait()
            try:
                await self._round()
            except Exception:
                self._broker.metrics.task_failures += 1
                logger.exception("a round of the flusher failed")
            if not self._dirty and not self._unwritten:
                self._has_work.clear()
            if not self._is_urgent.is_set():
                await self._pause()
            self._is_urgent.clear()

    async def flush_all(self) -> None:
        """Fsync every log, for a clean stop; what fails is marked in its log."""
        for partition in list(self._broker.partitions.values()):
            self._begin(partition)
        while self._flushes:
            await asyncio.gather(*self._flushes)
        for partition in list(self._broker.partitions.values()):
            # Appended to while its flush was under way; nobody appends any more.
            self._begin(partition)
        while self._flushes:
            await asyncio.gather(*self._flushes)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(ROUND_S):
                await self._is_urgent.wait()
        except TimeoutError:
            return

    async def _round(self) -> None:
        await self._write_epochs()
        now_ms = self._broker.clock.now_ms()
        write_outs: list[WriteOutJob] = []
        for partition in list(self._dirty):
            log = partition.log
            self._maybe_report(partition)
            job = flush.begin_write_out(log)
            if job is not None:
                write_outs.append(job)
            if flush.is_due(log, now_ms):
                self._begin(partition)
            if not self._must_watch(partition):
                del self._dirty[partition]
        loop = asyncio.get_running_loop()
        if write_outs:
            await loop.run_in_executor(self._executor, _run_write_outs, write_outs)
        for directory in self._broker.log_directories.live:
            deferred = directory.begin_sync()
            if deferred is None:
                continue
            try:
                await loop.run_in_executor(self._executor, deferred.run)
            except OSError:
                # The names in the other directories have to be made durable all the same.
                self._broker.metrics.flush_failures += 1
                await self._give_up_unsynced(directory, directory.complete_sync(deferred))

    async def _give_up_unsynced(self, directory: LogDirectory, failed: Sequence[Log]) -> None:
        """Report logs that are offline since their files or names could not be synced.

        A flush would say otherwise that a segment is durable whose name the disk has lost.
        """
        await asyncio.get_running_loop().run_in_executor(self._executor, _note_failures, failed)
        for partition in list(self._broker.partitions.values()):
            if partition.log in failed:
                partition.flushed()
                self._on_offline(partition)
        self._on_disk_error(directory.path)

    async def _write_epochs(self) -> None:
        """Put epoch files in place, a few a round and each in a turn of the loop of its own.

        No file is urgent: a flush writes the one that it needs. The fsyncs come later, together.
        """
        for partition in list(islice(self._unwritten, EPOCH_FILES_A_ROUND)):
            del self._unwritten[partition]
            try:
                is_written = partition.log.maybe_write_epochs()
            except KafkaError:
                # The log is offline now, or has no room, which the round reports.
                self._dirty[partition] = None
                continue
            if is_written:
                await asyncio.sleep(0)

    def _must_watch(self, partition: Partition) -> bool:
        """Tell whether the next round must look even if nothing is appended until then."""
        log = partition.log
        if log.is_offline or log.is_closed or log.log_end_offset == log.recovery_point:
            return False
        return log.config.flush_ms != NEVER or log.flush_state.is_wanted

    def _begin(self, partition: Partition) -> None:
        job = flush.begin_flush(partition.log)
        if job is None:
            self._maybe_report(partition)
        else:
            task = asyncio.get_running_loop().create_task(self._flush(partition, job))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    def _maybe_report(self, partition: Partition) -> None:
        if partition.log.is_offline:
            self._on_offline(partition)
        elif partition.log.lacks_room:
            self._broker.on_partition_offline(partition)

    async def _flush(self, partition: Partition, job: FlushJob) -> None:
        async with self._slots:
            took_ns = await asyncio.get_running_loop().run_in_executor(
                self._executor, _run_timed, job
            )
        self._broker.metrics.flush_times.note(took_ns)
        flush.complete_flush(partition.log, job, self._broker.clock.now_ms())
        if job.error is None:
            self._broker.metrics.flushes += 1
        elif not partition.log.is_closed:
            self._broker.metrics.flush_failures += 1
        partition.flushed()
        self.note([partition])


def _run_timed(job: FlushJob) -> int:
    """Flush, in a thread; how long that took, in nanoseconds."""
    began_ns = time.perf_counter_ns()
    job.run()
    return time.perf_counter_ns() - began_ns


def _note_failures(logs: Sequence[Log]) -> None:
    """Have the next recovery read logs from the device; in a thread."""
    for log in logs:
        flush.note_failed_flush(log.disk, log.path, log.recovery_point)


def _run_write_outs(jobs: Sequence[WriteOutJob]) -> None:
    for job in jobs:
        try:
            job.run()
        except OSError as error:
            # A hint only: an fsync will meet the same disk and is what takes a log offline.
            logger.warning("early write-out failed: %s", error)
