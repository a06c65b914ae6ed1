"""Deletes old segments by time, by size, and below the log's start, whether consumed or not.

Only whole sealed segments are deleted, oldest first, and only those wholly below the last stable
offset. A segment's files are renamed to `.deleted` at once and unlinked after
`file.delete.delay.ms`, in a thread, because freeing a large file takes long. When even the newest
record has expired, or no byte is to be kept, the active segment is rolled first, so that a topic
becomes empty as in Kafka. On a full disk the active segment stays until there is room for a roll;
the deletion of older segments makes room.
"""

import logging

from fairlead_broker.limits import SEGMENTS_DELETED_A_TURN
from fairlead_broker.log import full_disk
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.files.file_names import (
    DELETED_SUFFIX,
    RETENTION_SUFFIX,
    SNAPSHOT_SUFFIX,
    offset_name,
)
from fairlead_broker.log.producer_loading import snapshot_offsets
from fairlead_broker.log.segment import Segment
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_model.invariants import require
from fairlead_wire.record_batch import NO_TIMESTAMP

logger = logging.getLogger(__name__)


def delete_expired_segments(log: SegmentedLog, now_ms: int, last_stable_offset: int) -> int:
    """Roll an expired active segment, then delete the segments due; return their number.

    At most `SEGMENTS_DELETED_A_TURN` are deleted; if it was that many, more may be due.
    """
    config = log.config
    require(
        last_stable_offset <= log.log_end_offset,
        "{}: last stable offset {} above log end {}",
        log.path,
        last_stable_offset,
        log.log_end_offset,
    )
    if log.is_offline:
        return 0
    expire_before_ms: int | None = None
    if config.deletes_by_retention and config.retention_ms >= 0:
        expire_before_ms = now_ms - config.retention_ms
    if (
        not log.lacks_room
        and log.active.size > 0
        and last_stable_offset == log.log_end_offset
        and len(log.segments) <= SEGMENTS_DELETED_A_TURN
        and _is_all_due(log, expire_before_ms)
    ):
        log.roll(now_ms)
    count = plan_deletion(log, expire_before_ms, last_stable_offset)
    _delete_first(log, count, now_ms)
    return count


def delete_below_start(log: SegmentedLog, now_ms: int, high_watermark: int) -> int:
    """Delete only segments below the log's start: the leader decides the rest.

    If no record lies above the start, the active segment is rolled first, as the leader has done:
    otherwise nothing might roll it for a long time. At most `SEGMENTS_DELETED_A_TURN` are deleted.
    """
    if log.is_offline:
        return 0
    is_forgotten = log.log_start_offset == high_watermark == log.log_end_offset
    if log.active.size > 0 and is_forgotten and not log.lacks_room:
        log.roll(now_ms)
    count = 0
    for next_segment in log.segments[1 : SEGMENTS_DELETED_A_TURN + 1]:
        if next_segment.base_offset > min(log.log_start_offset, high_watermark):
            break
        count += 1
    _delete_first(log, count, now_ms)
    return count


def plan_deletion(log: SegmentedLog, expire_before_ms: int | None, last_stable_offset: int) -> int:
    """Return how many of the oldest segments are due now, at most `SEGMENTS_DELETED_A_TURN`."""
    config = log.config
    surplus = None
    if config.deletes_by_retention and config.retention_bytes >= 0:
        surplus = log.size - config.retention_bytes
    count = 0
    oldest = log.segments[:SEGMENTS_DELETED_A_TURN]
    for segment, next_segment in zip(oldest, log.segments[1:], strict=False):
        if next_segment.base_offset > last_stable_offset:
            break
        is_below_start = next_segment.base_offset <= log.log_start_offset
        is_expired = expire_before_ms is not None and _newest_ms(segment) < expire_before_ms
        is_surplus = surplus is not None and surplus >= segment.size
        if not (is_below_start or is_expired or is_surplus):
            break
        if surplus is not None:
            surplus -= segment.size
        count += 1
    return count


def advance_log_start_offset(log: SegmentedLog, offset: int) -> None:
    """Raise the log's start; the next retention check deletes segments wholly below it."""
    require(
        offset <= log.log_end_offset,
        "{}: log start {} above log end {}",
        log.path,
        offset,
        log.log_end_offset,
    )
    if offset <= log.log_start_offset:
        return
    log.log_start_offset = offset
    # The epoch file is written with the next flush. If the broker starts anew before that, the
    # start truncates the entries at the same offset. So DeleteRecords needs no room on the disk.
    log.epochs.truncate_from_start(offset)


def remove_segments(
    log: SegmentedLog, segments: list[Segment], now_ms: int, suffix: str = DELETED_SUFFIX
) -> None:
    """Take segments out of the log and rename their files; these are unlinked after the delay.

    A longer name may need room in the directory. On a full disk a segment is unlinked at once,
    which makes room. This happens between two syncs, so that no power cut brings back only the
    segments before or after it.
    """
    for segment in segments:
        try:
            paths = segment.mark_deleted(suffix)
        except OSError as error:
            if not full_disk.is_lack_of_room(error):
                raise
            log.disk.fsync_directory(log.path)
            segment.remove(suffix)
            log.disk.fsync_directory(log.path)
            continue
        log.deletions.add(paths, now_ms + log.config.file_delete_delay_ms)
    log.deferred.note_directory(log.path)


def _delete_first(log: SegmentedLog, count: int, now_ms: int) -> None:
    if count == 0:
        return
    log.settle_swap()
    gone = log.segments[:count]
    del log.segments[:count], log.bases[:count]
    # The start advances first: no reader may look for the segments that are renamed next.
    advance_log_start_offset(log, max(log.log_start_offset, log.segments[0].base_offset))
    # A power cut may undo one rename and keep a later one: the name tells recovery on which side of
    # such a gap the log goes on.
    remove_segments(log, gone, now_ms, RETENTION_SUFFIX)
    log.deletions.add(_old_snapshots(log, gone), now_ms)
    log.recovery_point = max(log.recovery_point, log.segments[0].base_offset)
    log.check_offsets()


def _old_snapshots(log: SegmentedLog, gone: list[Segment]) -> list[str]:
    """Return the paths of snapshots from below the log's first segment; not all of them exist."""
    offsets = [segment.base_offset for segment in gone]
    if len(gone) < SEGMENTS_DELETED_A_TURN:
        # A stop or a recovery has left others, and an earlier deletion that a crash interrupted. To
        # find them means to look at each file of the directory, and so not in each of many turns.
        first = log.segments[0].base_offset
        offsets = [offset for offset in snapshot_offsets(log.disk, log.path) if offset < first]
    return [f"{log.path}/{offset_name(offset)}{SNAPSHOT_SUFFIX}" for offset in offsets]


def _is_all_due(log: SegmentedLog, expire_before_ms: int | None) -> bool:
    """Tell whether retention asks for every record of the log."""
    if log.config.deletes_by_retention and log.config.retention_bytes == 0:
        return True
    return expire_before_ms is not None and all(
        _newest_ms(segment) < expire_before_ms for segment in reversed(log.segments)
    )


def _newest_ms(segment: Segment) -> int:
    """Return the time for retention: the largest timestamp, or the file's if records have none."""
    try:
        timestamp = segment.largest_timestamp()
    except CorruptSegmentError as error:
        # Readers get an error for the damage; here it must not stop the deletion in other logs.
        logger.warning("%s: its age is that of its file: %s", segment.path, error)
        timestamp = NO_TIMESTAMP
    return timestamp if timestamp != NO_TIMESTAMP else segment.modified_ms()
