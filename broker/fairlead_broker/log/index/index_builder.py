"""The index entries of a sequence of batches: the rule of `Segment.append`, for rebuilding.

An offset entry is due when more than `index.interval.bytes` were written since the last one; it
has the batch's last offset. The time entry with it has the largest timestamp so far.
"""

from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.index.index_file import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from fairlead_wire.record_batch import NO_TIMESTAMP, BatchHeader


class IndexBuilder:
    """Builds the bytes of both indexes of one segment from its batches in order."""

    __slots__ = (
        "_index_interval_bytes",
        "_last_timestamp",
        "base_offset",
        "indexed_position",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "time_index",
    )

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self._last_timestamp = NO_TIMESTAMP
        self.indexed_position = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset

    def add(self, position: int, header: BatchHeader) -> None:
        """Add the batch at `position`. CorruptSegmentError if its offset does not fit."""
        check_offset(position, header, self.base_offset)
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        if position - self.indexed_position > self._index_interval_bytes:
            self.offset_index += OFFSET_ENTRY.pack(header.last_offset - self.base_offset, position)
            self.indexed_position = position
            self._add_time_entry()

    def finish(self) -> None:
        """Add the last time entry, so that readers find the largest timestamp without a walk."""
        self._add_time_entry()

    def _add_time_entry(self) -> None:
        if self.max_timestamp > self._last_timestamp:
            relative_offset = self.max_timestamp_offset - self.base_offset
            self.time_index += TIME_ENTRY.pack(self.max_timestamp, relative_offset)
            self._last_timestamp = self.max_timestamp


def check_offset(position: int, header: BatchHeader, base_offset: int) -> None:
    """Raise CorruptSegmentError for a batch that cannot be in a segment with this base offset.

    No CRC covers the offset of a batch, and the file may be that of another segment. Only the first
    batch of a log may begin below its segment's base offset, and it ends above it.
    """
    if not 0 <= header.last_offset - base_offset <= RELATIVE_OFFSET_MAX:
        raise CorruptSegmentError(
            position, f"offset {header.last_offset} in a segment that begins at {base_offset}"
        )
