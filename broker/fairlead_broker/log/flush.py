"""Fsync and early write-out of a log, split between the loop and a thread.

`begin_flush` runs on the loop and collects the files to fsync; `FlushJob.run` runs in a thread and
uses only descriptors that the job itself keeps open; `complete_flush` runs on the loop again and
advances the recovery point. Appends go on meanwhile. If the log is truncated meanwhile, the job's
result is ignored.

**An fsync that failed is never retried.** The kernel marks the pages clean after the error, so a
second fsync would report success for lost data. The log goes offline, and the directory notes that
durably, so that the next start recovers it from the device.

Early write-out asks the kernel to start writing dirty pages while they are few. Otherwise they pile
up to `vm.dirty_ratio`, and the kernel blocks the next `pwrite`, and so the event loop.
"""

import logging
from typing import Final

from fairlead_broker.disk import Disk, replace_file
from fairlead_broker.limits import RECENT_PRODUCERS_AT_ONCE
from fairlead_broker.log import full_disk
from fairlead_broker.log.files.deferred_files import SyncJob
from fairlead_broker.log.files.file_names import FAILED_FLUSH
from fairlead_broker.log.files.file_slice import OpenFile
from fairlead_broker.log.producers.producer_snapshot import encode_snapshot
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_model.configs.log_config import NEVER

logger = logging.getLogger(__name__)

WRITE_OUT_BYTES: Final = 4 << 20
"""Dirty bytes of a segment before early write-out is worth a system call."""
SPACING_WITHOUT_TRANSACTIONS: Final = 4
"""How many times rarer the producers of such logs are kept for a truncation."""


class FlushJob:
    """Descriptors to fsync so that everything below `end_offset` is durable."""

    __slots__ = (
        "_directory",
        "_disk",
        "_files",
        "_parent",
        "_recovery_point",
        "end_offset",
        "error",
        "generation",
    )

    def __init__(self, log: SegmentedLog) -> None:
        self._disk = log.disk
        self._directory = log.path
        # This job keeps them open, whatever happens to their segments meanwhile.
        self._files = [file for segment in log.segments for file in segment.writers()]
        self._recovery_point = log.recovery_point
        # The first flush of a log may come before the name of its directory is durable.
        self._parent = log.path.rpartition("/")[0] if log.recovery_point == 0 else ""
        self.end_offset = log.log_end_offset
        self.generation = log.flush_state.generation
        self.error: OSError | None = None

    def run(self) -> None:
        """Fsync everything, in a thread; keep an error for `complete_flush`.

        `complete_flush` must be called with this job whether there was an error or not.
        """
        try:
            for file in self._files:
                self._disk.fsync(file.fd)
            # The names of segments created since the last flush must be on the device, too.
            self._disk.fsync_directory(self._directory)
            if self._parent:
                self._disk.fsync_directory(self._parent)
        except FileNotFoundError as error:
            # The directory is gone: the log was deleted meanwhile, or somebody removed it.
            self.error = error
        except OSError as error:
            self.error = error
            note_failed_flush(self._disk, self._directory, self._recovery_point)


def note_failed_flush(disk: Disk, directory: str, recovery_point: int) -> None:
    """Note durably that the next recovery has to read this log from the device.

    The name alone is enough for a restarted process, whose page cache still exists. The fsyncs are
    for a power cut; after that the page cache cannot hide lost pages.
    """
    path = f"{directory}/{FAILED_FLUSH}"
    try:
        replace_file(disk, path, f"{recovery_point}\n".encode(), durable=False)
        SyncJob(disk, [path], [directory]).run()
    except OSError as error:
        logger.error("%s: the failed flush is not durably noted: %s", directory, error)


class WriteOutJob:
    """A range of one segment whose pages the kernel should begin to write."""

    __slots__ = ("_disk", "_file", "position", "size")

    def __init__(self, disk: Disk, file: OpenFile, position: int, size: int) -> None:
        self._disk = disk
        self._file = file
        self.position = position
        self.size = size

    def run(self) -> None:
        """Start the write-out, in a thread; this blocks only if the device's queue is full."""
        self._disk.start_write_out(self._file.fd, self.position, self.size)


def _may_begin(log: SegmentedLog) -> bool:
    """Tell whether a flush may begin: never after the log was closed.

    If it was deleted, its path may be that of its successor, a new topic of the same name, whose
    epoch file must not be replaced.
    """
    state = log.flush_state
    return not (state.is_running or state.is_held or log.is_offline or log.is_closed)


def is_due(log: SegmentedLog, now_ms: int) -> bool:
    """Tell whether a flush should begin now."""
    state, config = log.flush_state, log.config
    if not _may_begin(log):
        return False
    if log.log_end_offset == log.recovery_point:
        return False
    if state.is_wanted or log.unflushed_messages >= config.flush_messages:
        return True
    # If the clock was set back, nobody knows how long ago the last flush was: it is due.
    return config.flush_ms != NEVER and not 0 <= now_ms - state.last_flush_ms < config.flush_ms


def begin_flush(log: SegmentedLog) -> FlushJob | None:
    """Collect the writers of all segments above the recovery point; None if no flush can begin.

    If the epoch file cannot be written, no flush begins: the log is then offline or lacks room.
    """
    state = log.flush_state
    if not _may_begin(log):
        return None
    if log.log_end_offset == log.recovery_point:
        return None
    if log.epochs.is_dirty:
        # Recovery does not read epochs from records below the recovery point, so they must be in
        # the file before that point advances. The job makes the file's name durable; a file that
        # lacks its content is recognised as damaged.
        try:
            log.write_epochs()
        except OSError as error:
            full_disk.refuse(log, error)
            return None
    state.is_running, state.is_wanted = True, False
    return FlushJob(log)


def complete_flush(log: SegmentedLog, job: FlushJob, now_ms: int) -> None:
    """Apply the result of a job."""
    state = log.flush_state
    state.is_running = False
    if log.is_closed:
        return
    if job.error is not None:
        state.failed_flush = job.error
        log.go_offline(job.error)
        return
    if job.generation != state.generation:
        return
    state.last_flush_ms = now_ms
    log.recovery_point = max(log.recovery_point, min(job.end_offset, log.log_end_offset))
    for segment, next_base in zip(log.segments, log.bases[1:], strict=False):
        if next_base <= log.recovery_point and segment.is_sealed and segment.writers():
            segment.release_writers()
    log.check_offsets()


def begin_write_out(log: SegmentedLog) -> WriteOutJob | None:
    """Return a job for the bytes appended to the active segment since the last job; None if few."""
    state, active = log.flush_state, log.active
    writers = active.writers()
    if log.is_offline or not writers:
        return None
    if state.write_out_base != active.base_offset:
        state.write_out_base, state.write_out_position = active.base_offset, 0
    size = active.size - state.write_out_position
    if size < WRITE_OUT_BYTES:
        return None
    position, state.write_out_position = state.write_out_position, active.size
    _note_producers(log)
    return WriteOutJob(log.disk, writers[0], position, size)


def _note_producers(log: SegmentedLog) -> None:
    """Keep the producers for a truncation: each few MiB, and so with the write-out.

    Further apart if there are many, and in logs without transactions: a truncation can mostly cut
    these in memory, unless all remembered batches of a producer are cut off.
    """
    producers = log.producers
    if not producers:
        return
    spacing = 1 if producers.has_transactions else SPACING_WITHOUT_TRANSACTIONS
    spacing *= 1 + (len(producers) - 1) // RECENT_PRODUCERS_AT_ONCE
    if log.recent_producers.is_due(spacing):
        log.recent_producers.note(log.log_end_offset, encode_snapshot(producers))
