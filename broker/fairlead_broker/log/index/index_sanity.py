"""Whether the indexes of a segment can belong to it: checked once, before they are used.

Recovery rebuilds indexes after a crash. This module is about damage by a disk, a copy or a person
to files that no process was writing: a file may be full of zeros, truncated, of another segment, or
missing. A shorter offset index would make lookups slow; a shorter time index would make retention
delete records too early. The check reads the ends of both, and the batches that they refer to.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.index.index_file import RELATIVE_OFFSET_MAX
from fairlead_wire.record_batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.log.index.index_file import IndexFile
    from fairlead_wire.record_batch import BatchHeader

UNINDEXED_BYTES_MAX: Final = 4 << 20
"""An index has lost its end if more bytes than these, and then a batch, follow its last entry.

Not `index.interval.bytes` as it is now: it may have been larger when the index was written.
"""


class IndexedSegment(Protocol):
    """The part of a `Segment` that its indexes refer to."""

    base_offset: int
    size: int
    offset_index: IndexFile
    time_index: IndexFile

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Walk the batches from a position on."""


def ends_fit(segment: IndexedSegment) -> bool:
    """Tell whether both indexes rise from first to last entry, within the segment's limits."""
    times = segment.time_index.values
    try:
        if not (offset_ends_fit(segment) and _rises(segment.time_index)):
            return False
        return not len(times) or (times[len(times) - 1] <= RELATIVE_OFFSET_MAX and segment.size > 0)
    except CorruptSegmentError:
        return False


def offset_ends_fit(segment: IndexedSegment) -> bool:
    """Do the same as `ends_fit` for the offset index alone."""
    index = segment.offset_index
    if not len(index):
        return True
    try:
        relative, position = index.entry(len(index) - 1)
        # The first batch of a segment is never indexed.
        is_within = 0 < relative <= RELATIVE_OFFSET_MAX and 0 < position < segment.size
        return is_within and _rises(index)
    except CorruptSegmentError:
        return False


def _rises(index: IndexFile) -> bool:
    if len(index) < 2:
        return True
    (first_key, first_value), (key, value) = index.entry(0), index.entry(len(index) - 1)
    return key > first_key and value >= first_value


def batches_fit(segment: IndexedSegment) -> bool:
    """Tell whether the batches that the last entries refer to exist and match."""
    try:
        return _fits_end(segment) and _fits_newest(segment)
    except CorruptSegmentError:
        return False


def _fits_end(segment: IndexedSegment) -> bool:
    """Check the batch of the last offset entry, and one more if many bytes follow.

    The entry's offset may be larger: Kafka once indexed several batches by their last offset.
    """
    count, times = len(segment.offset_index), segment.time_index.keys
    relative, start = segment.offset_index.entry(count - 1) if count else (RELATIVE_OFFSET_MAX, 0)
    newest_ms = times[len(times) - 1] if len(times) else NO_TIMESTAMP
    for position, header in segment.headers(start):
        last_relative = header.last_offset - segment.base_offset
        is_of_entry = position > start or last_relative <= relative
        is_indexed = position - start <= UNINDEXED_BYTES_MAX
        if not is_of_entry or not is_indexed or header.max_timestamp > newest_ms:
            return False
        if segment.size - start <= UNINDEXED_BYTES_MAX:
            break
    return True


def _fits_newest(segment: IndexedSegment) -> bool:
    """Check the batch with the largest timestamp."""
    count = len(segment.time_index)
    if not count:
        return True
    newest_ms, relative = segment.time_index.entry(count - 1)
    before = bisect_right(segment.offset_index.keys, relative)
    for _, header in segment.headers(segment.offset_index.values[before - 1] if before else 0):
        if header.last_offset - segment.base_offset >= relative:
            return header.max_timestamp == newest_ms
    return False
