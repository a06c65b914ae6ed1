"""Files of operations that a crash interrupted: completed or discarded before a log is opened.

`.deleted` files are removed; `.cleaned` and `.tmp` files are unfinished, and are removed; a `.swap`
file is complete output of compaction, so the swap is completed; an index without its log is
removed. Segments that are older than one that retention deleted are removed: retention deleted
them, too, even if a power loss has undone that. Each step can be repeated: after a crash in here
the next start does the same.
"""

from fairlead_broker.disk import Disk, unlink_if_present
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError, walk_headers
from fairlead_broker.log.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RETENTION_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)
from fairlead_broker.log.files.holes import mark_holes

TEMPORARY_SUFFIX = ".tmp"
_DISCARDED = (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)
WORKING_SUFFIXES = (*_DISCARDED, SWAP_SUFFIX)


def settle_leftovers(disk: Disk, directory: str, names: set[str]) -> bool:
    """Complete or discard them; return whether anything in the directory changed."""
    changed = _repeat_retention(disk, directory, names)
    if changed:
        # Only then may the `.retention.deleted` names be removed.
        disk.fsync_directory(directory)
        names = {entry.name for entry in disk.list_directory(directory)}
    for name in sorted(names):
        if name.endswith(_DISCARDED):
            changed |= unlink_if_present(disk, f"{directory}/{name}")
    swaps = [name for name in sorted(names) if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    for name in swaps:
        _finish_swap(disk, directory, name, names)
        changed = True
    _lose_indexes(disk, directory, names)
    for name in names:
        if name.endswith(SWAP_SUFFIX) and name not in swaps:
            # Indexes are rebuilt from the log that was swapped in.
            changed |= unlink_if_present(disk, f"{directory}/{name}")
    if changed:
        names = {entry.name for entry in disk.list_directory(directory)}
    for suffix in SEGMENT_SUFFIXES[1:]:
        for name in names:
            base_offset = parse_offset_name(name, suffix)
            if base_offset is not None and offset_name(base_offset) + LOG_SUFFIX not in names:
                changed |= unlink_if_present(disk, f"{directory}/{name}")
    if changed:
        disk.fsync_directory(directory)
    return changed


def _repeat_retention(disk: Disk, directory: str, names: set[str]) -> bool:
    """Remove each segment that is older than one that retention deleted.

    Retention deletes the oldest first, but names reach the disk in any order. An older segment that
    remained would be the log's beginning, with a gap after it; and recovery ends a log at a gap.
    """
    deleted = [parse_offset_name(name, LOG_SUFFIX + RETENTION_SUFFIX) for name in names]
    newest = max((base for base in deleted if base is not None), default=-1)
    changed = False
    for name in sorted(names):
        for suffix in (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX):
            base = parse_offset_name(name, suffix)
            if base is not None and base < newest:
                changed |= unlink_if_present(disk, f"{directory}/{name}")
    return changed


def discard_cleaned(disk: Disk, directory: str) -> None:
    """Remove the output of a cleaning that was given up."""
    for entry in disk.list_directory(directory):
        if entry.name.endswith(CLEANED_SUFFIX):
            unlink_if_present(disk, f"{directory}/{entry.name}")


def _finish_swap(disk: Disk, directory: str, name: str, names: set[str]) -> None:
    """Replace the segments in the offset range of the `.swap` file."""
    path = f"{directory}/{name}"
    base_offset = parse_offset_name(name.removesuffix(SWAP_SUFFIX), LOG_SUFFIX)
    if base_offset is None:
        return
    # The mark was made before the file got this name, but only an fsync of the directory keeps the
    # order.
    mark_holes(disk, directory)
    end_offset = _end_offset(disk, path, base_offset)
    for other in names:
        other_base = parse_offset_name(other, LOG_SUFFIX)
        if other_base is not None and base_offset < other_base < end_offset:
            for suffix in SEGMENT_SUFFIXES:
                unlink_if_present(disk, f"{directory}/{offset_name(other_base)}{suffix}")
    for suffix in SEGMENT_SUFFIXES[1:]:
        unlink_if_present(disk, f"{directory}/{offset_name(base_offset)}{suffix}")
    # The old segments must be gone durably first: else the log could have offsets twice.
    disk.fsync_directory(directory)
    disk.rename(path, path.removesuffix(SWAP_SUFFIX))


def _lose_indexes(disk: Disk, directory: str, names: set[str]) -> None:
    """Have all indexes derived again if the transaction index still has its `.swap` name.

    A power loss may undo that rename and keep the others: then a missing transaction index would
    not be noticed.
    """
    for name in names:
        base_offset = parse_offset_name(name, TRANSACTION_INDEX_SUFFIX + SWAP_SUFFIX)
        if base_offset is not None:
            unlink_if_present(disk, f"{directory}/{offset_name(base_offset)}{INDEX_SUFFIX}")
            # Durably, before the `.swap` name is removed.
            disk.fsync_directory(directory)


def _end_offset(disk: Disk, path: str, base_offset: int) -> int:
    fd = disk.open_read(path)
    try:
        end_offset = base_offset
        try:
            for _, header in walk_headers(disk, fd, 0, disk.size(fd)):
                end_offset = header.next_offset
        except CorruptSegmentError:
            # The output was fsynced before it got its name, so this is damage of the device; the
            # segments after the intact part stay.
            return end_offset
        return end_offset
    finally:
        disk.close(fd)
