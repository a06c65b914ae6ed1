"""Producer state of a log at an offset: the newest intact snapshot, then the batches behind."""

import logging
from bisect import bisect_right

from fairlead_broker.disk import Disk, read_file
from fairlead_broker.limits import SMALL_FILE_BYTES_MAX
from fairlead_broker.log.file_names import SNAPSHOT_SUFFIX, offset_name, parse_offset_name
from fairlead_broker.log.producer_snapshot import decode_snapshot
from fairlead_broker.log.producer_state import ProducerState
from fairlead_broker.log.segment import Segment

logger = logging.getLogger(__name__)


def load_producers(
    disk: Disk,
    directory: str,
    producers: ProducerState,
    segments: list[Segment],
    end_offset: int,
    *,
    now_ms: int,
    was_clean: bool = False,
) -> None:
    """Fill `producers` with the state at `end_offset`, the end of the last segment.

    A clean stop writes no snapshot of a log that has no producers and never had a snapshot. One
    that is damaged was written: then the log says what the snapshot said.
    """
    start = restore_snapshot(disk, directory, producers, end_offset, now_ms=now_ms)
    if start is None:
        producers.restore((), now_ms)
        has_none = was_clean and not snapshot_offsets(disk, directory)
        start = end_offset if has_none else segments[0].base_offset
    if start >= end_offset:
        return
    at = max(bisect_right([segment.base_offset for segment in segments], start) - 1, 0)
    for segment in segments[at:]:
        found = segment.find_batch(start)
        if found is None:
            continue
        for _, header in segment.headers(found[0]):
            if header.base_offset >= start:
                producers.replay(header, now_ms)


def restore_snapshot(
    disk: Disk, directory: str, producers: ProducerState, offset_max: int, *, now_ms: int
) -> int | None:
    """Load the newest intact snapshot not above `offset_max`; answers its offset, None if none."""
    for offset in sorted(snapshot_offsets(disk, directory), reverse=True):
        if offset > offset_max:
            continue
        path = f"{directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"
        try:
            entries = decode_snapshot(read_file(disk, path, size_max=SMALL_FILE_BYTES_MAX))
        except ValueError as error:
            logger.warning("%s is unreadable and ignored: %s", path, error)
            continue
        producers.restore(entries, now_ms)
        return offset
    return None


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Where the snapshots of a log were taken, by their names alone."""
    return [
        offset
        for entry in disk.list_directory(directory)
        if (offset := parse_offset_name(entry.name, SNAPSHOT_SUFFIX)) is not None
    ]
