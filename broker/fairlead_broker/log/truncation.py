"""Truncates a follower's log that diverged from its leader's.

Only to offsets from leader epochs (R1), never to a high watermark.

A truncation has to be durable before anything is appended after it. Otherwise a power cut could
leave some pages of the old end between pages of the new one, all with valid checksums; or the new
end could lie below the old, higher recovery point, where recovery does not look. So the log refuses
appends until the directory's next checkpoint job has fsynced the cut and the lower recovery point,
many logs at once, in a thread.
"""

import errno
from bisect import bisect_left

from fairlead_broker.disk import unlink_if_present
from fairlead_broker.log import full_disk
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.files.file_names import (
    LOG_SUFFIX,
    RETENTION_SUFFIX,
    SNAPSHOT_SUFFIX,
    parse_offset_name,
)
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.producer_loading import load_producers
from fairlead_broker.log.producers.producer_state import NO_OFFSET
from fairlead_broker.log.retention import remove_segments
from fairlead_broker.log.segment import Segment
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_model.invariants import require


def truncate_to(log: SegmentedLog, offset: int) -> None:
    """Drop every batch that contains or follows `offset`.

    If `offset` lies inside a batch, the log ends before that batch, but never below its start. If
    `offset` is not below the log's end, only epochs without records are dropped.
    """
    if offset >= log.log_end_offset:
        _forget_empty_epochs(log)
        return
    require(
        offset >= log.log_start_offset,
        "{}: truncation to {} below log start {}",
        log.path,
        offset,
        log.log_start_offset,
    )
    try:
        log.settle_swap()
        keep = max(bisect_left(log.bases, offset + 1), 1)
        gone = log.segments[keep:]
        del log.segments[keep:], log.bases[keep:]
        last = log.segments[-1]
        if gone:
            # Newest first: a kill in between must leave no hole, because recovery would accept the
            # hole in a log that may have gaps.
            remove_segments(log, gone[::-1], 0)
        if last.is_sealed:
            last.activate()
        found = last.find_batch(offset)
        end_offset = offset
        if found is not None:
            position, header = found
            end_offset = min(offset, header.base_offset)
            last.truncate(position)
        if last.end_offset() < end_offset:
            # The records before the end were compacted away: only a new segment's name can tell
            # where the log ends.
            last.seal()
            log.add_segment(_new_segment(log, end_offset, last.created_ms))
        if end_offset < log.log_start_offset:
            # The dropped batch also contained the log's start: nothing is left above it.
            restart_at(log, log.log_start_offset)
            return
        _end_at(log, end_offset)
        # Reading a segment header by header takes seconds and blocks the loop: only if needed.
        if not log.producers.maybe_cut_to(end_offset):
            _take_back_producers(log, end_offset)
    except OSError as error:
        raise log.go_offline(error) from error
    except CorruptSegmentError as error:
        # The place to cut is unknown, and later segments may be gone already.
        raise log.go_offline(OSError(errno.EIO, str(error))) from error


def _forget_empty_epochs(log: SegmentedLog) -> None:
    """Forget epochs that start at the log's end: this replica led in them and appended nothing."""
    log.epochs.truncate_from_end(log.log_end_offset)
    if log.epochs.is_dirty:
        try:
            _write_epochs(log)
        except OSError as error:
            raise log.go_offline(error) from error


def restart_at(log: SegmentedLog, offset: int) -> None:
    """Drop everything; the log is empty and starts at `offset`.

    Producers are dropped, too: their last batches may lie between the old end and the new start. A
    producer that this replica does not know may go on, while one whose sequence is outdated here
    would be refused.
    """
    try:
        log.settle_swap()
        gone = list(log.segments)
        log.segments.clear()
        log.bases.clear()
        remove_segments(log, gone[::-1], 0)
        _forget_above(log, NO_OFFSET)
        log.log_start_offset = offset
        log.start_before_cut = None
        # Epochs are dropped, too: if the leader does not have the last one, it would have this log
        # truncate again and again.
        log.epochs.truncate_from_end(0)
        log.add_segment(_new_segment(log, offset, gone[-1].created_ms))
        _end_at(log, offset)
        _take_back_producers(log, offset)
    except OSError as error:
        raise log.go_offline(error) from error


def _new_segment(log: SegmentedLog, base_offset: int, created_ms: int) -> Segment:
    return Segment.create(
        log.disk,
        log.cache,
        log.path,
        base_offset,
        index_interval_bytes=log.config.index_interval_bytes,
        index_bytes_max=log.config.segment_index_bytes,
        created_ms=created_ms,
    )


def _forget_above(log: SegmentedLog, end_offset: int) -> None:
    """Remove snapshots above the new end, and segments above it that retention has renamed.

    Such segments exist only after an unclean election. Recovery removes each segment that is older
    than one that retention has renamed: it would drop records that are appended now.
    """
    for entry in log.disk.list_directory(log.path):
        snapshot = parse_offset_name(entry.name, SNAPSHOT_SUFFIX)
        deleted = parse_offset_name(entry.name, LOG_SUFFIX + RETENTION_SUFFIX)
        is_cut_off = snapshot is not None and snapshot > end_offset
        if is_cut_off or (deleted is not None and deleted >= end_offset):
            # The thread that removes deleted segments may have removed it already.
            unlink_if_present(log.disk, f"{log.path}/{entry.name}")


def _write_epochs(log: SegmentedLog) -> None:
    """Write the epoch file now, or before anything is appended again, if there is no room now."""
    try:
        log.write_epochs()
    except OSError as error:
        if not full_disk.is_lack_of_room(error):
            raise
        full_disk.run_out(log, error)


def _end_at(log: SegmentedLog, end_offset: int) -> None:
    log.set_active()
    log.log_end_offset = end_offset
    log.flush_state.forget_flushes()
    log.recovery_point = min(log.recovery_point, end_offset)
    log.first_dirty_offset = min(log.first_dirty_offset, end_offset)
    log.recent_producers.forget_above(end_offset)
    if log.refusal is None:
        log.refusal = AWAITS_CHECKPOINT
    log.epochs.truncate_from_end(end_offset)
    if log.epochs.is_dirty:
        _write_epochs(log)
    _forget_above(log, end_offset)
    log.deferred.note_directory(log.path)
    log.check_offsets()


def _take_back_producers(log: SegmentedLog, end_offset: int) -> None:
    """Restore the producers as of the new end; this may have to read a whole segment.

    Mostly it need not: a log whose transactions write much has recent snapshots in memory.
    """
    # Snapshots do not have these. A transaction whose marker was cut off is open again, and dropped
    # here.
    ended = [each for each in log.producers.unreplicated if each.marker_offset < end_offset]
    # There is no clock here: idle time counts from the latest activity of any producer. If it
    # counted from zero, the next roll would forget them all.
    active_ms = max((entry.last_active_ms for entry in log.producers), default=0)
    load_producers(
        log.disk,
        log.path,
        log.producers,
        log.segments,
        end_offset,
        now_ms=active_ms,
        recent=log.recent_producers.newest(log.bases[0], end_offset),
    )
    log.producers.add_unreplicated(ended)
