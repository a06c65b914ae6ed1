"""All logs of a broker on one disk: opened, recovered, checkpointed and closed together.

Life of a directory: `open` (lock, identity) → `load` (clean logs at once, the others recovered) →
registration with the controller → `confirm_start` (from here on logs take appends) → `close`.
Everything that blocks on the device is a job for a thread, or its docstring says "Blocks". Logs
that the controller does not know are set aside as `-stray`, never deleted. A broker keeps all of
its directories in `LogDirectories`.
"""

import errno
import logging
import os
import uuid
from collections.abc import Callable, ValuesView
from functools import partial
from typing import TYPE_CHECKING

from fairlead_broker import ballast
from fairlead_broker.disk import Disk, RealDisk, replace_file, unlink_if_present
from fairlead_broker.log.compaction.cleaning_plan import first_dirty_offset
from fairlead_broker.log.directory.checkpointed_offsets import (
    CheckpointedOffsets,
    not_yet_checkpointed,
)
from fairlead_broker.log.directory.checkpoints import CheckpointJob, Checkpoints, TruncatedLog
from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.directory.identity import (
    DirectoryIdentity,
    StartRecord,
    kernel_boot_id,
)
from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.lock import DirectoryLock
from fairlead_broker.log.directory.log_loader import LogLoader, UncleanLogError
from fairlead_broker.log.directory.scan import scan_directory
from fairlead_broker.log.files import reserve
from fairlead_broker.log.files.cut_start import note_cut_start, read_cut_start
from fairlead_broker.log.files.deferred_files import DeferredFiles, SyncJob
from fairlead_broker.log.files.deletions import DeletionJob, Deletions, remove_tree_if_present
from fairlead_broker.log.files.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    FILE_NAME_BYTES_MAX,
    STRAY_DIRECTORY_SUFFIX,
    partition_directory,
)
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.log.files.text_files import TopicPartition
from fairlead_broker.log.flush import note_failed_flush
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.log import Log
from fairlead_broker.log.recovery.log_recovery import bytes_to_scan
from fairlead_broker.log.recovery.pool import RecoveryOutcome, RecoveryPool, RecoveryProgress
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_model.configs.log_config import NEVER, LogConfig
from fairlead_model.invariants import require
from fairlead_model.metadata_seen import MetadataSeen

if TYPE_CHECKING:
    from fairlead_broker.log.moving.passing_marks import PassingMarks

logger = logging.getLogger(__name__)

AWAITS_START = "append before the start was confirmed"
PROBE = ".fairlead-probe"


class LogDirectory:
    """`offline` has the logs that could not be opened at start, with the reason."""

    def __init__(
        self,
        path: str,
        *,
        node_id: int,
        cluster_id: str | None = None,
        disk: Disk | None = None,
        boot_id: str | None = None,
        lock: DirectoryLock | None = None,
        cache: ReadCache | None = None,
    ) -> None:
        """Take over a directory that is locked already; callers mostly use `open`."""
        self.path = path
        self.is_full = False
        """Whether the disk is full: no new log is created here before there is room."""
        self.disk: Disk = RealDisk() if disk is None else disk
        self.disk.make_directory(path)
        self.node_id = node_id
        self.boot_id = kernel_boot_id() if boot_id is None else boot_id
        self._logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, str] = {}
        self.has_failed_sync = False
        """Whether a write of this process is not durable; it is unknown which one."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.passing: dict[TopicPartition, PassingMarks] = {}
        """Marks of logs that are moving from another directory to this one, or the other way."""
        self.futures: list[tuple[TopicPartition, str]] = []
        """Names of copies of moving logs that were found here at start."""
        self._lock = lock
        self._identity = DirectoryIdentity(self.disk, path)
        self.cache = ReadCache(self.disk) if cache is None else cache
        self.deferred = DeferredFiles(self.disk)
        self._loader = LogLoader(self.disk, self.cache, self.deferred)
        self._checkpoints = Checkpoints(self.disk, path)
        self._checkpointed = CheckpointedOffsets()
        self._fresh: list[Log] = []
        self._is_confirmed = False
        self.removals = Deletions(remove_tree_if_present)
        # Offsets of logs that could not be opened: checkpoints keep them for a repaired disk. They
        # also keep recovery points of missing logs, until the controller knows of these.
        self._unloaded = CheckpointedOffsets()
        properties = self._identity.claim(cluster_id=cluster_id, node_id=node_id)
        self.directory_id = properties["directory.id"]
        self.cluster_id = properties["cluster.id"]
        self.start: StartRecord = self._identity.begin_start(self.directory_id, self.boot_id)
        self.metadata_seen = self._identity.metadata_seen()
        """The latest version of the metadata that the disk has noted."""

    @classmethod
    def open(
        cls,
        path: str,
        *,
        node_id: int,
        cluster_id: str | None = None,
        cache: ReadCache | None = None,
    ) -> "LogDirectory":
        """Lock and claim. DirectoryInUseError, ForeignDirectoryError or OSError if impossible.

        Several directories share `cache`, because it bounds the descriptors of the process.
        """
        # First of all: the files of a directory are those of the process that has its lock.
        lock = DirectoryLock(path)
        try:
            if ballast.remove(path):
                logger.warning("%s: a drill had filled the disk, and has left its ballast", path)
            is_full = reserve.give_up_if_full(path)
            lock.name_holder(f"node.id={node_id} pid={os.getpid()}")
            directory = cls(path, node_id=node_id, cluster_id=cluster_id, lock=lock, cache=cache)
        except BaseException:
            lock.release()
            raise
        directory.is_full = is_full
        reserve.keep(path)
        return directory

    @property
    def logs(self) -> ValuesView[Log]:
        """The usable logs."""
        return self._logs.values()

    def log(self, topic: str, partition: int) -> Log | None:
        """Return the log of a partition, None if there is no usable one."""
        return self._logs.get((topic, partition))

    def assign_cluster_id(self, cluster_id: str) -> None:
        """Set the controller's cluster id. ForeignDirectoryError if the data has another one."""
        self._identity.claim(cluster_id=cluster_id, node_id=self.node_id)
        self.cluster_id = cluster_id

    def load(
        self,
        now_ms: int,
        *,
        config_for: Callable[[str, int], LogConfig],
        recovery_workers: int = 2,
        on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
        lost_writes: OSError | None = None,
    ) -> LoadReport:
        """Open every log; recover those first that may be damaged. Blocks: in a thread.

        `lost_writes` is an error that the kernel has reported to another directory on the same file
        system. The kernel reports it once, and the lost writes may have been to this directory.
        """
        scan = scan_directory(self.disk, self.path)
        report = LoadReport(foreign=scan.foreign)
        self.futures = scan.futures
        for name in scan.foreign:
            logger.warning("%s/%s is no log of this broker and is left alone", self.path, name)
        self.removals.add([f"{self.path}/{name}" for name in scan.deleted], now_ms)
        directories = {key: f"{self.path}/{name}" for key, name in scan.partitions.items()}
        checkpointed = self._checkpointed = CheckpointedOffsets.read(self._checkpoints)
        checkpointed.forget_strangers(self.disk, {} if self.start.was_clean else directories)
        self.high_watermarks = dict(checkpointed.high_watermarks)
        report.missing = checkpointed.missing(scan.partitions)
        for topic, index in report.missing:
            logger.warning("%s/%s-%d is not here any more", self.path, topic, index)
        configs = {key: config_for(*key) for key in scan.partitions}
        unclean = set() if self.start.was_clean else set(scan.partitions)
        if self.start.was_clean:
            for key in scan.partitions:
                try:
                    self._load_log(key, configs[key], now_ms)
                except UncleanLogError as error:
                    logger.warning("recovering in spite of a clean stop: %s", error)
                    unclean.add(key)
                except OSError as error:
                    report.offline[key] = str(error)
        orders = [
            self._recovery_order(key, directories[key], configs[key]) for key in sorted(unclean)
        ]

        def recover() -> RecoveryOutcome:
            return RecoveryPool(
                self.disk,
                orders,
                bytes_total=sum(bytes_to_scan(self.disk, order) for order in orders),
                workers_max=recovery_workers,
                on_progress=on_progress,
            ).run(now_ms)

        outcome, report.write_back_error = self._recover_and_sync(orders, recover, lost_writes)
        report.take_in(outcome, {key: directories[key] for key in unclean})
        for key in sorted(unclean - report.offline.keys()):
            try:
                self._load_log(key, configs[key], now_ms)
            except (UncleanLogError, OSError) as error:
                report.offline[key] = str(error)
        self.offline = dict(report.offline)
        self._unloaded = checkpointed.of(self.offline)
        self._unloaded.recovery_points.update(
            (key, checkpointed.recovery_points.get(key, 0))
            for key in (*self.offline, *report.missing)
        )
        report.loaded = len(self._logs)
        if report.recovered:
            # After another crash the recovery then starts here and does not scan all again.
            self.write_checkpoints()
        return report

    def _recovery_order(
        self, key: tuple[str, int], directory: str, config: LogConfig
    ) -> RecoveryOrder:
        return RecoveryOrder(
            directory=directory,
            recovery_point=self._checkpointed.recovery_points.get(key, 0),
            log_start_offset=self._checkpointed.log_start_offsets.get(key, 0),
            index_interval_bytes=config.index_interval_bytes,
            has_holes=key in self._checkpointed.first_dirty_offsets,
            has_page_cache=self.start.is_same_boot,
            high_watermark=self._checkpointed.high_watermarks.get(key, 0),
        )

    def _recover_and_sync(
        self,
        orders: list[RecoveryOrder],
        recover: Callable[[], RecoveryOutcome],
        lost_writes: OSError | None,
    ) -> tuple[RecoveryOutcome, OSError | None]:
        """Recover the logs and make all of them durable; return also the error if writes were lost.

        If writes were lost, it is unknown which log they belong to, and the page cache may be wrong
        for every log. So all are recovered again, from the device and with an fsync for every file.
        """
        outcome = recover()
        if self.start.was_clean and not orders:
            return outcome, None
        try:
            self.disk.sync_file_system(self.path)
            if lost_writes is not None:
                raise lost_writes
        except OSError as error:
            logger.error("%s may have lost what was written: %s", self.path, error)
            for order in orders:
                note_failed_flush(self.disk, order.directory, order.recovery_point)
            return recover(), error
        return outcome, None

    def _load_log(self, key: TopicPartition, config: LogConfig, now_ms: int) -> None:
        checkpointed = self._checkpointed
        log = self._loader.load(
            f"{self.path}/{partition_directory(*key)}",
            topic=key[0],
            partition=key[1],
            config=config,
            log_start_offset=checkpointed.log_start_offsets.get(key, 0),
            now_ms=now_ms,
        )
        # Do this before any append. If recovery has truncated the log below this offset, appends
        # would soon move the end above it, and tombstones after the cut would wrongly count as
        # compacted.
        log.first_dirty_offset = first_dirty_offset(
            checkpointed.first_dirty_offsets.get(key, 0), log.log_start_offset, log.log_end_offset
        )
        log.last_horizon_ms = checkpointed.last_horizons_ms.get(key, NEVER)
        known_start = checkpointed.log_start_offsets.get(key, 0)
        durable_end = max(known_start, checkpointed.recovery_points.get(key, 0))
        log.start_before_cut = read_cut_start(self.disk, log.path)
        if not self.start.is_same_boot and log.log_start_offset > durable_end:
            # A power loss took the names of the first segments, or retention deleted them after
            # the last checkpoint.
            log.start_before_cut = known_start
            note_cut_start(self.disk, log.path, known_start)
        log.refusal = AWAITS_START
        self._logs[key] = log

    def confirm_start(self, broker_epoch: int) -> None:
        """Let logs take appends: the controller knows this start. A few fsyncs, once per start."""
        self.note_start(broker_epoch)
        self.begin_appends()

    def note_start(self, broker_epoch: int) -> None:
        """Note durably which start the controller has registered."""
        self._identity.note_start(broker_epoch=broker_epoch, boot_id=self.boot_id)

    def begin_appends(self) -> None:
        """Remove the marker of the last clean stop, and let logs take appends."""
        self._identity.forget_stop()
        self.go_on()

    def go_on(self) -> None:
        """Let logs take appends: the registered start that is noted here goes on (R33)."""
        self._is_confirmed = True
        self._unloaded = self._unloaded.of(self.offline)
        for log in self._logs.values():
            if log.refusal == AWAITS_START:
                log.refusal = None

    def note_metadata(self, seen: MetadataSeen) -> None:
        """Note durably a newer version of the metadata, if it is one: a write and two fsyncs."""
        if seen > self.metadata_seen:
            self._identity.note_metadata(seen)
            self.metadata_seen = seen

    def create_log(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int
    ) -> Log:
        """Create an empty log; the next `begin_sync` makes its names durable."""
        key = (topic, partition)
        require(key not in self._logs, "{} has a log already", key)
        if self.is_full:
            # The little room that is left is kept for the next start.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        log = self._loader.create(
            f"{self.path}/{partition_directory(topic, partition)}",
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            now_ms=now_ms,
        )
        if not self._is_confirmed:
            log.refusal = AWAITS_START
        self._logs[key] = log
        self._unloaded.forget(key)
        return log

    def take_in(self, log: Log) -> None:
        """Add a log that has moved here from another directory, with its files."""
        key = (log.topic, log.partition)
        require(key not in self._logs, "{} has a log already", key)
        self._logs[key] = log
        self._unloaded.forget(key)

    def hand_out(self, log: Log) -> None:
        """Drop a log that has moved to another directory; its files here are not used any more.

        A checkpoint that is being written is still about the log that was here.
        """
        del self._logs[log.topic, log.partition]
        self.high_watermarks.pop((log.topic, log.partition), None)
        self._fresh = [each for each in self._fresh if each is not log]

    def delete_log(self, log: Log, now_ms: int) -> str:
        """Rename the log's directory so that it is no log any more, and remove it later.

        Return the new path, or the old one if the disk fails.
        """
        target = self._take_out(log, DELETE_DIRECTORY_SUFFIX)
        if target != log.path:
            self.removals.add([target], now_ms + log.config.file_delete_delay_ms)
        return target

    def set_aside(self, log: Log) -> str:
        """Take a log out of service that the controller does not know; return where its data is."""
        return self._take_out(log, STRAY_DIRECTORY_SUFFIX)

    def _take_out(self, log: Log, suffix: str) -> str:
        key = (log.topic, log.partition)
        require(self._logs.get(key) is log, "{} is not a log of {}", log.path, self.path)
        del self._logs[key]
        self.high_watermarks.pop(key, None)
        log.close()
        ending = f".{uuid.uuid4().hex}{suffix}"
        name = partition_directory(*key)[: FILE_NAME_BYTES_MAX - len(ending)]
        target = f"{self.path}/{name}{ending}"
        try:
            self.disk.rename(log.path, target)
        except OSError as error:
            logger.error("%s stays, the next start sets it aside: %s", log.path, error)
            return log.path
        self.deferred.note_directory(self.path)
        return target

    def begin_sync(self) -> SyncJob | None:
        """Return a job with the fsyncs of small files and names since the last one, if any."""
        return self.deferred.begin_sync()

    def complete_sync(self, job: SyncJob) -> list[Log]:
        """Take logs offline whose files the job could not make durable; return these logs.

        The fsync is not tried again: the kernel has marked the lost pages as clean, and the next
        fsync would succeed. So from here on no stop counts as clean, and the next start recovers
        the logs.
        """
        failed = []
        for path, error in job.refused.items():
            self.has_failed_sync = True
            logger.error("%s is not durable: %s", path, error)
            parent = path.rpartition("/")[0]
            for log in self._logs.values():
                # The name of a log in this directory is durable from the log's first flush on.
                is_unnamed = path == self.path and log.recovery_point == 0
                if (log.path in (path, parent) or is_unnamed) and not log.is_offline:
                    log.go_offline(error)
                    failed.append(log)
        return failed

    def begin_removals(self, now_ms: int) -> DeletionJob | None:
        """Return a job that removes deleted logs that are due; `removals.complete` ends it."""
        return self.removals.begin(self.disk, now_ms)

    def begin_checkpoint(
        self, high_watermarks: dict[TopicPartition, int] | None = None
    ) -> CheckpointJob | None:
        """Return a job that writes the offsets of all logs; None while another such job runs."""
        if high_watermarks is not None:
            self.high_watermarks = dict(high_watermarks)
        passing = {key: each for key, each in self.passing.items() if key not in self._logs}
        unloaded = self._unloaded
        job = self._checkpoints.begin(
            recovery_points=unloaded.recovery_points
            | {key: each.recovery_point for key, each in passing.items()}
            | {key: log.recovery_point for key, log in self._logs.items()},
            log_start_offsets=unloaded.log_start_offsets
            | {key: each.log_start_offset for key, each in passing.items()}
            | {key: log.log_start_offset for key, log in self._logs.items()},
            high_watermarks=unloaded.high_watermarks
            | self.high_watermarks
            | {key: each.high_watermark for key, each in passing.items()},
            first_dirty_offsets=unloaded.first_dirty_offsets
            | {
                key: log.first_dirty_offset
                for key, log in (self._logs | passing).items()
                if log.first_dirty_offset > log.log_start_offset
            },
            last_horizons_ms=unloaded.last_horizons_ms
            | {
                key: log.last_horizon_ms
                for key, log in (self._logs | passing).items()
                if log.last_horizon_ms != NEVER
            },
            truncated=[
                TruncatedLog(log) for log in self._logs.values() if log.refusal == AWAITS_CHECKPOINT
            ],
        )
        if job is not None:
            self._fresh = not_yet_checkpointed(self._logs.values())
        return job

    def begin_noting(self) -> tuple[CheckpointJob, Callable[[int], None]] | None:
        """Return a job that writes the marks in `passing`, and a function that completes it.

        None while another checkpoint is written.
        """
        job = self.begin_checkpoint()
        return None if job is None else (job, partial(self.complete_checkpoint, job))

    def complete_checkpoint(self, job: CheckpointJob, now_ms: int = 0) -> None:
        """Take a job's result, on the loop: logs with a durable truncation take appends again."""
        if not self._checkpoints.complete(job, now_ms):
            return
        for log in self._fresh:
            log.note_checkpointed()
        self._fresh = []

    def write_checkpoints(self, high_watermarks: dict[TopicPartition, int] | None = None) -> None:
        """Begin, run and complete a checkpoint. Blocks."""
        job = self.begin_checkpoint(high_watermarks)
        if job is not None:
            job.run()
            self.complete_checkpoint(job)

    def probe(self) -> OSError | None:
        """Return the error of a test write and fsync, None if both succeed. Blocks: in a thread.

        The broker calls this when one log has failed. If the probe fails too, all logs of the disk
        go offline.
        """
        try:
            replace_file(self.disk, f"{self.path}/{PROBE}", b"probe\n", durable=True)
            unlink_if_present(self.disk, f"{self.path}/{PROBE}")
        except OSError as error:
            return error
        return None

    def close(self, *, clean: bool, broker_epoch: int = -1, now_ms: int = 0) -> bool:
        """Stop; with `clean`, flush everything and mark the stop as clean. Blocks: in a thread.

        Return whether the marker was written. It is not if a log is offline, if a flush failed, or
        if this start was never confirmed (then the marker of the stop before is still there).
        """
        is_clean = clean and self.flush_all(now_ms)
        self.release(marked_epoch=broker_epoch if is_clean else None)
        return is_clean

    def flush_all(self, now_ms: int) -> bool:
        """Make everything durable, with a checkpoint; tell whether the stop counts as clean."""
        if not self._is_confirmed:
            return False
        is_clean = not self.offline
        for log in self._logs.values():
            is_clean &= stop_log(log, now_ms)
        sync = self.begin_sync()
        if sync is not None:
            try:
                sync.run()
            except OSError:
                self.complete_sync(sync)
        self.write_checkpoints()
        return is_clean and not self.has_failed_sync

    def release(self, *, marked_epoch: int | None = None) -> None:
        """Close all logs and release the lock; with an epoch, mark the stop as clean."""
        try:
            if marked_epoch is not None:
                self._identity.mark_clean(marked_epoch)
        finally:
            for log in self._logs.values():
                log.close()
            if self._lock is not None:
                self._lock.release()
