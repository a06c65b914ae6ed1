"""Recovering one log after a crash: afterwards its files are as a clean stop leaves them.

Everything below the recovery point was fsynced. From the segment with the recovery point on, each
batch is checked: length, magic, CRC, offsets in sequence, leader epoch not falling. The log ends
before the first bad batch: later segments are removed first (so that a second crash cannot leave a
hole), then the file is truncated. Indexes, leader epochs and producer state are derived again. The
result is a valid prefix with everything that was fsynced (I10), and a second run changes nothing.

The files that are written here are not durable yet. The caller recovers many logs, and then syncs
their file system once, before the recovery point moves: with six fsyncs a log, a thousand logs took
a busy machine twenty seconds. If the power fails before, the same recovery repairs the log again.
Only the order of removals is forced here, and all files of a log whose flush failed, or whose epoch
file was lost. Such a log is scanned below the recovery point only for that reason, and the next
recovery would find the epoch file that this one has written.

This runs in a child process (`recovery_worker`), because checksums would keep the event loop's
interpreter lock; it is plain code over `Disk`.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from fairlead_broker.disk import Disk, replace_file, unlink_if_present
from fairlead_broker.log.batch_replay import replay_batch
from fairlead_broker.log.batches.batch_scan import (
    SCAN_CHUNK_BYTES,
    CorruptSegmentError,
    scan_batches,
    walk_headers,
)
from fairlead_broker.log.files.file_names import (
    FAILED_FLUSH,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)
from fairlead_broker.log.files.holes import may_have_holes
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.files.text_files import (
    CorruptFileError,
    decode_epoch_checkpoint,
    decode_offset,
    encode_epoch_checkpoint,
)
from fairlead_broker.log.index.index_builder import IndexBuilder, check_offset
from fairlead_broker.log.index.index_file import write_index
from fairlead_broker.log.index.transaction_index import AbortedTransaction, encode_aborted
from fairlead_broker.log.leader_epochs import LeaderEpochs
from fairlead_broker.log.producer_loading import restore_snapshot, snapshot_offsets
from fairlead_broker.log.producers.producer_snapshot import encode_snapshot
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.recovery.leftovers import settle_leftovers
from fairlead_broker.log.recovery.start import RecoveryOrder, first_open_seam, is_untouched
from fairlead_wire.record_batch import BatchHeader

logger = logging.getLogger(__name__)

PROGRESS_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of recovering one log."""

    directory: str
    log_end_offset: int
    scanned_bytes: int
    truncated_bytes: int
    removed_segments: int
    reason: str = ""
    """Why the log was truncated; empty if it was not."""
    is_unclean: bool = False
    """True if more than a torn last batch may be lost: then acknowledged records may be missing."""


class LogRecovery:
    """The recovery of one log. It calls `on_progress` with scanned bytes, in steps."""

    def __init__(
        self, disk: Disk, order: RecoveryOrder, on_progress: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._order = order
        self._directory = order.directory
        self._on_progress = on_progress
        self._scanned_bytes = 0
        self._truncated_bytes = 0
        self._removed_segments = 0
        self._reason = ""
        self._is_unclean = False
        self._epochs = LeaderEpochs()
        self._producers = ProducerState()
        self._end_offset = order.log_start_offset
        self._recovery_point = order.recovery_point
        self._distrusts_cache = False
        self._knows_epochs = False
        self._written: list[str] = []
        self._snapshots: set[int] = set()
        self._at_high_watermark: tuple[int, bytes] | None = None
        """The snapshot of the producers at the last batch boundary not above it, and its offset."""
        self._last_scanned_epoch = -1
        self._last_batch_end = 0
        self._remembered_epochs: list[tuple[int, int]] = []

    def run(self, now_ms: int) -> RecoveryReport:
        """Recover the log; the module says which files are durable then."""
        disk, directory = self._disk, self._directory
        settle_leftovers(disk, directory, {entry.name for entry in disk.list_directory(directory)})
        # A swap that was just completed may have made the mark.
        has_holes = self._order.has_holes or may_have_holes(disk, directory)
        self._order = replace(self._order, has_holes=has_holes)
        self._heed_failed_flush()
        bases = self._segment_bases()
        if bases:
            first = self._first_scanned(bases)
            if self._is_untouched(bases, first):
                self._end_offset = self._recovery_point
            else:
                self._restore_producers(bases, first, now_ms)
                self._scan_from(bases, first, now_ms)
                if not self._knows_epochs and len(bases) > 1:
                    # Else a transaction index that a power loss has emptied would not be noticed.
                    self._sync_written()
                self._write_derived(bases[first])
        if self._distrusts_cache:
            self._forget_failed_flush()
        return RecoveryReport(
            directory,
            self._end_offset,
            self._scanned_bytes,
            self._truncated_bytes,
            self._removed_segments,
            self._reason,
            self._is_unclean,
        )

    def _heed_failed_flush(self) -> None:
        """Distrust the page cache after a failed fsync: it may have data that the device lacks.

        So everything above the recovery point of that time is read from the device.
        """
        try:
            noted = decode_offset(read_small_file(self._disk, f"{self._directory}/{FAILED_FLUSH}"))
        except FileNotFoundError:
            return
        except CorruptFileError:
            noted = 0
        self._distrusts_cache = True
        self._is_unclean = True
        self._recovery_point = min(self._recovery_point, noted)

    def _forget_failed_flush(self) -> None:
        """Remove the note of the failed flush, after making this recovery's files durable."""
        self._sync_written()
        unlink_if_present(self._disk, f"{self._directory}/{FAILED_FLUSH}")
        self._disk.fsync_directory(self._directory)

    def _sync_written(self) -> None:
        for path in self._written:
            fd = self._disk.open_read(path)
            try:
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
        self._disk.fsync_directory(self._directory)

    def _segment_bases(self) -> list[int]:
        return sorted(
            base
            for entry in self._disk.list_directory(self._directory)
            if (base := parse_offset_name(entry.name, LOG_SUFFIX)) is not None
        )

    def _first_scanned(self, bases: list[int]) -> int:
        """Return the index of the segment with the recovery point; 0 if the epoch file is lost."""
        try:
            content = read_small_file(self._disk, f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}")
            self._epochs = LeaderEpochs(decode_epoch_checkpoint(content))
            self._knows_epochs = True
        except FileNotFoundError:
            return 0
        except CorruptFileError as error:
            logger.warning("%s: leader epochs are derived anew: %s", self._directory, error)
            return 0
        first = max(bisect_right(bases, self._recovery_point) - 1, 0)
        return first_open_seam(self._disk, self._order, bases, first)

    def _is_untouched(self, bases: list[int], first: int) -> bool:
        return (
            not self._distrusts_cache
            and self._knows_epochs
            and first == len(bases) - 1
            and is_untouched(self._disk, self._order, bases[-1])
        )

    def _restore_producers(self, bases: list[int], first: int, now_ms: int) -> None:
        """Restore the state at the first scanned segment, from a snapshot below and headers."""
        start = restore_snapshot(
            self._disk, self._directory, self._producers, bases[0], bases[first], now_ms=now_ms
        )
        start = bases[0] if start is None else start
        for base in bases[max(bisect_right(bases, start) - 1, 0) : first]:
            fd = self._disk.open_read(self._path(base, LOG_SUFFIX))
            try:
                for position, header in walk_headers(self._disk, fd, 0, self._disk.size(fd)):
                    # A log's first batch may begin below the start (R17).
                    if header.last_offset >= start:
                        self._replay(fd, position, header, now_ms)
            except CorruptSegmentError as error:
                # Below the recovery point this is damage of the device; readers will get an error.
                logger.warning("%s: %s", self._path(base, LOG_SUFFIX), error)
            finally:
                self._disk.close(fd)

    def _replay(
        self, fd: int, position: int, header: BatchHeader, now_ms: int
    ) -> AbortedTransaction | None:
        return replay_batch(
            self._disk, fd, position, header, producers=self._producers, now_ms=now_ms
        )

    def _scan_from(self, bases: list[int], first: int, now_ms: int) -> None:
        # The scan gives the epochs. Of the remembered ones, only those before the scanned part are
        # kept, and (see `_write_derived`) an epoch that was entered at the very end.
        self._remembered_epochs = self._epochs.entries()
        self._epochs.truncate_from_end(bases[first])
        self._end_offset = self._last_batch_end = bases[first]
        for at in range(first, len(bases)):
            base = bases[at]
            is_gap = base != self._end_offset and at > first
            if is_gap and not self._is_compacted_away(base):
                self._reason = f"segment {base} does not follow offset {self._end_offset}"
                self._is_unclean = True
                self._remove_segments(bases[at:])
                return
            if at > first:
                # Write a snapshot as a roll does: once retention deletes earlier segments, only it
                # has the producers whose last batch was there.
                self._write_snapshot(base)
            if not self._scan_segment(base, is_first=at == 0, later=bases[at + 1 :], now_ms=now_ms):
                return

    def _is_compacted_away(self, base: int) -> bool:
        """Tell whether the gap before a segment comes from compaction, and not from the crash.

        Segments are rolled at the log's end, and only records below the recovery point are
        compacted. So in a gap above it, a power loss took the end of the segment before. If the log
        went on after it, this replica would claim records that it lacks. If the gap was from
        compaction after all (a follower rolled after one), the leader sends the records again.
        """
        if not self._order.has_holes or base < self._end_offset:
            return False
        has_lost_nothing = self._order.has_page_cache and not self._distrusts_cache
        return has_lost_nothing or base <= self._recovery_point

    def _scan_segment(self, base: int, *, is_first: bool, later: list[int], now_ms: int) -> bool:
        """Check one segment; False if the log ends in it before its end."""
        disk, path = self._disk, self._path(base, LOG_SUFFIX)
        fd = disk.open_write(path)
        try:
            if self._distrusts_cache:
                disk.drop_cache(fd)
            size = disk.size(fd)
            builder = IndexBuilder(base, self._order.index_interval_bytes)
            aborts: list[bytes] = []
            end, reported = 0, 0
            self._end_offset = max(base, self._end_offset)
            is_whole = True
            try:
                for position, header, _ in scan_batches(
                    disk, fd, 0, size, whole_bytes_max=SCAN_CHUNK_BYTES
                ):
                    self._check_sequence(position, header, base if is_first else None)
                    # Before the batch changes any state: it may be truncated.
                    check_offset(position, header, base)
                    self._maybe_pass_high_watermark(header, base)
                    aborted = self._replay(fd, position, header, now_ms)
                    if aborted is not None:
                        aborts.append(encode_aborted(aborted))
                    builder.add(position, header)
                    self._take_in(header)
                    end = position + header.size
                    if end - reported >= PROGRESS_BYTES:
                        self._on_progress(end - reported)
                        reported = end
            except CorruptSegmentError as error:
                self._reason = f"{offset_name(base)}{LOG_SUFFIX} {error}"
                is_whole = False
                self._is_unclean |= bool(later) or not error.is_cut_off
            self._on_progress(size - reported)
            self._scanned_bytes += size
            if not is_whole:
                self._remove_segments(later)
                self._truncated_bytes += size - end
                disk.truncate(fd, end)
        finally:
            disk.close(fd)
        self._written.append(path)
        self._write_indexes(base, builder, b"".join(aborts))
        return is_whole

    def _maybe_pass_high_watermark(self, header: BatchHeader, base: int) -> None:
        """Take a snapshot of the producers before the first batch that ends above it.

        If this replica has what the next leader lacks, the log is truncated to an offset above it,
        on the event loop. What is open there is then read from here on, and not from the beginning
        of the segment, which would block the loop for seconds.
        """
        high_watermark = self._order.high_watermark
        if (
            self._at_high_watermark is None
            and base < self._end_offset <= high_watermark < header.next_offset
        ):
            self._at_high_watermark = self._end_offset, encode_snapshot(self._producers)

    def _check_sequence(self, position: int, header: BatchHeader, first_base: int | None) -> None:
        """Raise CorruptSegmentError if offsets are not consecutive (I8) or the epoch falls.

        Only the very first batch of a log may start below its segment's base (R17).
        """
        expected = self._end_offset
        is_next = header.base_offset == expected or (
            self._order.has_holes and header.base_offset > expected
        )
        if position == 0 and first_base is not None:
            is_next |= header.base_offset <= first_base <= header.last_offset
        if not is_next:
            raise CorruptSegmentError(
                position, f"offset {header.base_offset} where {expected} should follow"
            )
        if header.partition_leader_epoch < self._last_scanned_epoch:
            raise CorruptSegmentError(
                position,
                f"leader epoch {header.partition_leader_epoch} after {self._last_scanned_epoch}",
            )

    def _take_in(self, header: BatchHeader) -> None:
        self._last_scanned_epoch = header.partition_leader_epoch
        if header.partition_leader_epoch != self._epochs.last_epoch:
            self._epochs.drop_above(header.partition_leader_epoch)
            if header.partition_leader_epoch != self._epochs.last_epoch:
                self._epochs.assign(header.partition_leader_epoch, self._epoch_start(header))
        self._end_offset = self._last_batch_end = header.next_offset

    def _epoch_start(self, header: BatchHeader) -> int:
        """Return where an epoch began, for the first remaining batch of it.

        Earlier batches of the epoch may have been compacted away. Then the remembered start is used
        if it is in that gap, else the gap's beginning. With a start that is too early a follower
        copies records again; with one that is too late it keeps records that diverge from this log.
        """
        earliest = min(self._last_batch_end, header.base_offset)
        for epoch, start_offset in self._remembered_epochs:
            is_in_gap = earliest <= start_offset <= header.base_offset
            if epoch == header.partition_leader_epoch and is_in_gap:
                return start_offset
        return earliest

    def _remove_segments(self, bases: list[int]) -> None:
        """Remove segments, the newest first: a crash in between must not leave a hole."""
        sizes = {e.name: e.size for e in self._disk.list_directory(self._directory)}
        for base in reversed(bases):
            logger.warning("%s: segment %d lies behind the end of the log", self._directory, base)
            for suffix in SEGMENT_SUFFIXES:
                unlink_if_present(self._disk, self._path(base, suffix))
            size = sizes[offset_name(base) + LOG_SUFFIX]
            self._removed_segments += 1
            self._truncated_bytes += size
            self._on_progress(size)
        if bases:
            self._disk.fsync_directory(self._directory)

    def _write_indexes(self, base: int, builder: IndexBuilder, aborts: bytes) -> None:
        builder.finish()
        for suffix, content in (
            (INDEX_SUFFIX, builder.offset_index),
            (TIME_INDEX_SUFFIX, builder.time_index),
            (TRANSACTION_INDEX_SUFFIX, aborts),
        ):
            path = self._path(base, suffix)
            if suffix == TRANSACTION_INDEX_SUFFIX and not content:
                unlink_if_present(self._disk, path)
                continue
            write_index(self._disk, path, content)
            self._written.append(path)

    def _write_derived(self, scanned_from: int) -> None:
        """Write leader epochs and producer state at the new end.

        Older snapshots above the beginning of the scan may not match this log, and are removed.
        """
        for epoch, start_offset in self._remembered_epochs[-1:]:
            if start_offset == self._end_offset and epoch > self._epochs.last_epoch:
                # Its leader had appended nothing yet; followers ask for the epoch anyway (R4).
                self._epochs.assign(epoch, start_offset)
        if self._at_high_watermark is not None and len(self._producers):
            offset, content = self._at_high_watermark
            self._replace(self._path(offset, SNAPSHOT_SUFFIX), content)
            self._snapshots.add(offset)
        for offset in snapshot_offsets(self._disk, self._directory):
            if offset > scanned_from and offset not in self._snapshots:
                unlink_if_present(self._disk, self._path(offset, SNAPSHOT_SUFFIX))
        self._replace(
            f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}",
            encode_epoch_checkpoint(self._epochs.entries()),
        )
        self._write_snapshot(self._end_offset)

    def _write_snapshot(self, offset: int) -> None:
        self._replace(self._path(offset, SNAPSHOT_SUFFIX), encode_snapshot(self._producers))
        self._snapshots.add(offset)

    def _replace(self, path: str, content: bytes) -> None:
        replace_file(self._disk, path, content, durable=False)
        self._written.append(path)

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._directory}/{offset_name(offset)}{suffix}"


def recover_log(
    disk: Disk,
    order: RecoveryOrder,
    *,
    now_ms: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> RecoveryReport:
    """Recover one log. OSError if the disk fails."""
    return LogRecovery(disk, order, on_progress).run(now_ms)


def bytes_to_scan(disk: Disk, order: RecoveryOrder) -> int:
    """Return how many bytes recovery will read: all segments from that with the recovery point on.

    Return 0 if the directory cannot be read; recovery will report the error.
    """
    try:
        entries = disk.list_directory(order.directory)
    except OSError:
        return 0
    sizes = {
        base: entry.size
        for entry in entries
        if (base := parse_offset_name(entry.name, LOG_SUFFIX)) is not None
    }
    bases = sorted(sizes)
    first = max(bisect_right(bases, order.recovery_point) - 1, 0)
    return sum(sizes[base] for base in bases[first:])
