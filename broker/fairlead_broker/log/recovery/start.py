"""Where the recovery of a log begins, and whether it has anything to do.

This reads little, and writes only an index that turns out to be damaged.
"""

from dataclasses import dataclass

from fairlead_broker.disk import Disk
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.files.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.index.transaction_index import TransactionIndex
from fairlead_broker.log.producers.producer_snapshot import decode_snapshot
from fairlead_broker.log.segment import Segment


@dataclass(frozen=True, slots=True)
class RecoveryOrder:
    """The log to recover, and its offsets in the checkpoints."""

    directory: str
    recovery_point: int
    log_start_offset: int
    index_interval_bytes: int
    has_holes: bool = False
    """True if the log may be compacted: offsets rise but may have gaps (see `holes`)."""
    has_page_cache: bool = False
    """True if the kernel has run since the log was last written, so no write was lost."""
    high_watermark: int = 0
    """Mostly nothing below it is truncated any more."""


def first_open_seam(disk: Disk, order: RecoveryOrder, bases: list[int], first: int) -> int:
    """Return the first segment below `first` that does not reach up to the next one, else `first`.

    Below the recovery point nothing was lost, but a truncation may have been interrupted: segments
    are removed, the file before them is truncated, and the lower recovery point is not written yet.
    """
    for at in range(first):
        end_offset = _segment_end(disk, order, bases[at])
        if end_offset is None or end_offset > bases[at + 1]:
            return at
        if end_offset < bases[at + 1] and not order.has_holes:
            return at
    return first


def is_untouched(disk: Disk, order: RecoveryOrder, last_base: int) -> bool:
    """Return True if nothing was written since a stop, a roll or a recovery.

    These three write a snapshot at the very end, when the indexes are complete. The log must also
    have its page cache: a power loss may have kept index entries of records that it took.
    """
    if not order.has_page_cache:
        return False
    stem = f"{order.directory}/{offset_name(last_base)}"
    if not all(disk.exists(stem + suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
        return False
    try:
        snapshot = f"{order.directory}/{offset_name(order.recovery_point)}{SNAPSHOT_SUFFIX}"
        decode_snapshot(read_small_file(disk, snapshot))
    except (FileNotFoundError, ValueError):
        return False
    if _tells_of_aborts_above(disk, order, stem + TRANSACTION_INDEX_SUFFIX):
        return False
    return _segment_end(disk, order, last_base) == order.recovery_point


def _tells_of_aborts_above(disk: Disk, order: RecoveryOrder, path: str) -> bool:
    """Tell whether a truncation has cut the records but not yet the transaction index."""
    try:
        fd = disk.open_read(path)
    except FileNotFoundError:
        return False
    size = disk.size(fd)
    disk.close(fd)
    index = TransactionIndex(disk, ReadCache(disk), path, size)
    return next(index.entries_from(order.recovery_point), None) is not None


def _segment_end(disk: Disk, order: RecoveryOrder, base: int) -> int | None:
    """Return the offset after a segment's last batch, with its index; None if it is damaged."""
    sizes, is_lost = {}, False
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        try:
            fd = disk.open_read(f"{order.directory}/{offset_name(base)}{suffix}")
        except FileNotFoundError:
            sizes[suffix], is_lost = 0, True
            continue
        sizes[suffix] = disk.size(fd)
        disk.close(fd)
    segment = Segment(
        disk,
        ReadCache(disk),
        order.directory,
        base,
        size=sizes[LOG_SUFFIX],
        index_size=sizes[INDEX_SUFFIX],
        time_index_size=sizes[TIME_INDEX_SUFFIX],
        index_interval_bytes=order.index_interval_bytes,
        index_bytes_max=sizes[INDEX_SUFFIX],
    )
    try:
        # If indexes are missing, the transaction index may be, too: loading derives all of them.
        return segment.next_offset_after(0) if is_lost else segment.end_offset()
    except CorruptSegmentError:
        return None
