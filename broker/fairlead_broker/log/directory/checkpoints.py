"""The checkpoint files of a data directory, written together by a job in a thread.

The event loop collects the values, the thread writes the files that changed (tmp, fsync, rename,
fsync of the directory). Only one job runs at a time: two could replace a newer value by an older
one.
"""

import logging
from collections.abc import Mapping

from fairlead_broker.disk import Disk, replace_file
from fairlead_broker.log.files.cut_start import forget_cut_start
from fairlead_broker.log.files.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TOMBSTONE_CHECKPOINT,
)
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.files.text_files import (
    CorruptFileError,
    TopicPartition,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from fairlead_broker.log.flush import FlushJob, complete_flush
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.segmented_log import SegmentedLog

logger = logging.getLogger(__name__)


class TruncatedLog:
    """One truncation of one log, which a checkpoint job makes durable."""

    __slots__ = ("_flush", "_has_run", "_is_start_known", "_log")

    def __init__(self, log: SegmentedLog) -> None:
        self._log = log
        self._flush = FlushJob(log)
        self._has_run = False
        self._is_start_known = log.start_before_cut is None

    def run(self) -> None:
        """Make the truncation durable. Runs in a thread. OSError."""
        self._has_run = True
        self._flush.run()
        if self._flush.error is None and self._is_start_known:
            # Not earlier: a power loss could bring back the log from before its new start.
            forget_cut_start(self._log.disk, self._log.path)

    def complete(self, now_ms: int, *, is_written: bool) -> None:
        """Let the log take appends again, unless it was truncated again meanwhile."""
        log = self._log
        if not self._has_run:
            return  # The job failed at another log first: this truncation is not durable.
        complete_flush(log, self._flush, now_ms)
        is_latest = log.flush_state.generation == self._flush.generation
        if is_written and is_latest and log.refusal == AWAITS_CHECKPOINT:
            log.refusal = None


class CheckpointJob:
    """Values of one moment; `run` makes them durable. `error` is set if the disk fails."""

    __slots__ = ("_disk", "_files", "_path", "error", "truncated")

    def __init__(
        self, disk: Disk, path: str, files: dict[str, bytes], truncated: list[TruncatedLog]
    ) -> None:
        self._disk = disk
        self._path = path
        self._files = files
        self.truncated = truncated
        self.error: OSError | None = None

    def run(self) -> None:
        """Write the files. Runs in a thread."""
        try:
            for cut in self.truncated:
                cut.run()
            for name, content in self._files.items():
                replace_file(self._disk, f"{self._path}/{name}", content, durable=True)
        except OSError as error:
            self.error = error


class Checkpoints:
    """Remembers the content of each file, so that an idle broker writes nothing."""

    __slots__ = ("_disk", "_path", "_running", "_written")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._written: dict[str, bytes] = {}
        self._running: dict[str, bytes] | None = None

    def begin(
        self,
        *,
        recovery_points: Mapping[TopicPartition, int],
        log_start_offsets: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
        first_dirty_offsets: Mapping[TopicPartition, int],
        last_horizons_ms: Mapping[TopicPartition, int],
        truncated: list[TruncatedLog],
    ) -> CheckpointJob | None:
        """Return a job for the files that changed; None while another job runs."""
        if self._running is not None:
            return None
        contents = {
            RECOVERY_POINT_CHECKPOINT: encode_offset_checkpoint(recovery_points),
            LOG_START_OFFSET_CHECKPOINT: encode_offset_checkpoint(log_start_offsets),
            HIGH_WATERMARK_CHECKPOINT: encode_offset_checkpoint(high_watermarks),
        }
        # In this order: a log that the cleaner's file names must have its tombstones' horizon.
        for name, by_partition in (
            (TOMBSTONE_CHECKPOINT, last_horizons_ms),
            (CLEANER_CHECKPOINT, first_dirty_offsets),
        ):
            if by_partition or name in self._written:
                contents[name] = encode_offset_checkpoint(by_partition)
        self._running = {
            name: content
            for name, content in contents.items()
            if self._written.get(name) != content
        }
        return CheckpointJob(self._disk, self._path, self._running, truncated)

    def complete(self, job: CheckpointJob, now_ms: int) -> bool:
        """Note the result, on the event loop; return whether the job has written all files."""
        running, self._running = self._running or {}, None
        for cut in job.truncated:
            cut.complete(now_ms, is_written=job.error is None)
        if job.error is not None:
            logger.error("checkpoints of %s were not written: %s", self._path, job.error)
            for name in running:
                self._written.pop(name, None)
            return False
        self._written.update(running)
        return True

    def read(self, name: str) -> dict[TopicPartition, int]:
        """Return one file's offsets; none if it is missing or damaged (zero is always safe)."""
        try:
            content = read_small_file(self._disk, f"{self._path}/{name}")
            offsets = decode_offset_checkpoint(content)
        except FileNotFoundError:
            return {}
        except CorruptFileError as error:
            logger.warning("%s/%s is ignored: %s", self._path, name, error)
            offsets = {}
        # Have the file written again, even if it will be empty: else a log that is created later
        # with a name in this file would be taken for the old log.
        self._written[name] = b""
        return offsets
