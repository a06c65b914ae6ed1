"""What is left of one batch after compaction. Pure.

A record survives if no later record has its key. A tombstone (no value) survives too, until its
batch's *delete horizon* has passed: the first cleaning that meets it notes the time from which it
may go in the batch itself (attribute bit 6; the base timestamp then holds the horizon, KIP-534), so
that whoever reads from the beginning has `delete.retention.ms` to learn of the deletion. A record
without a key, from a time when the topic was not compacted, goes, and so does what lies below the
log's start: should a crash take the start back, a deleted key's old value must not be there without
its tombstone.

Offsets stay: base offset, last offset, leader epoch, producer id, epoch and sequence of a batch
are kept whatever dies in it. A batch without survivors goes, but for two: the last of a producer
that is still active, without which a retry would be appended twice after a change of leader; and
the last of a segment, without which a reader could not get to the segment's end. They stay empty.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import pack_into
from typing import Final, NamedTuple

from fairlead_broker.log.keyed_records import (
    RECORD_BYTES_MIN,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    KeyedRecord,
    UnreadableRecordsError,
    keyed_records,
    timestamp_delta,
    unpack_body,
    with_shifted_timestamp,
)
from fairlead_broker.log.offset_map import OffsetMap
from fairlead_wire.compression import Codec, compress
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    NO_TIMESTAMP,
    BatchHeader,
    batch_crc,
)
from fairlead_wire.segments import Buffer

HORIZON_MAX: Final = 2**63 - 1
CRC_POSITION: Final = 17


@dataclass(slots=True)
class CleaningCounts:
    """What one cleaning did to records; `null_keys` are among the removed."""

    records_kept: int = 0
    records_removed: int = 0
    tombstones_removed: int = 0
    null_keys: int = 0
    last_horizon_ms: int = NO_TIMESTAMP
    """When the last of the tombstones that are left may go; -1 if none is left."""


class CleanedBatch(NamedTuple):
    """A batch as it is written; `data` is the very batch that was read if nothing changed."""

    header: BatchHeader
    data: Buffer


class _Survivors:
    """Where the surviving records of one batch begin and end in its body."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts = array("I")
        self.ends = array("I")

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.ends, strict=True)


class BatchCleaning:
    """The rules of one cleaning: which keys are newer where, and what time it is.

    `last_offsets` are the newest offsets of active producers, by producer id. Batches from
    `end_offset` on are not in the map; they are kept as they are. The log starts at `start_offset`.
    """

    __slots__ = (
        "_delete_retention_ms",
        "_end_offset",
        "_last_offsets",
        "_newest",
        "_now_ms",
        "_start_offset",
        "counts",
    )

    def __init__(
        self,
        newest: OffsetMap,
        *,
        end_offset: int,
        start_offset: int = 0,
        now_ms: int,
        delete_retention_ms: int,
        last_offsets: Mapping[int, int],
    ) -> None:
        self._newest = newest
        self._end_offset = end_offset
        self._start_offset = start_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._last_offsets = last_offsets
        self.counts = CleaningCounts()

    def clean(
        self, header: BatchHeader, batch: memoryview, *, is_last: bool
    ) -> CleanedBatch | None:
        """What is left of `batch`, None if nothing is. UnreadableRecordsError."""
        if header.base_offset >= self._end_offset or header.is_control:
            return CleanedBatch(header, batch)
        body = unpack_body(header, batch)
        kept, has_tombstones = self._survivors(header, body)
        counts, records_count = self.counts, header.records_count
        counts.records_kept += len(kept)
        counts.records_removed += records_count - len(kept)
        if not len(kept):
            is_needed = is_last or self._last_offsets.get(header.producer_id) == header.last_offset
            if not is_needed:
                return None
            return _emptied(header) if records_count else CleanedBatch(header, batch)
        horizon_ms = None
        if has_tombstones:
            horizon_ms = header.base_timestamp
            if not header.has_delete_horizon:
                horizon_ms = min(self._now_ms + self._delete_retention_ms, HORIZON_MAX)
            counts.last_horizon_ms = max(counts.last_horizon_ms, horizon_ms)
            if header.has_delete_horizon:
                horizon_ms = None
        if len(kept) == records_count and horizon_ms is None:
            return CleanedBatch(header, batch)
        return _rebuilt(header, body, kept, horizon_ms)

    def _survivors(self, header: BatchHeader, body: bytes) -> tuple[_Survivors, bool]:
        """What stays, and whether a tombstone is among it."""
        base_offset, start_offset = header.base_offset, self._start_offset
        newest, counts = self._newest.newest, self.counts
        is_over = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        kept, has_tombstones = _Survivors(), False
        for start, end, key, is_tombstone, offset_delta in read_keyed_records(header, body):
            if key is None:
                counts.null_keys += 1
                continue
            offset = base_offset + offset_delta
            if offset < start_offset or newest(key) > offset:
                continue
            if is_tombstone:
                if is_over:
                    counts.tombstones_removed += 1
                    continue
                has_tombstones = True
            kept.starts.append(start)
            kept.ends.append(end)
        return kept, has_tombstones


def read_keyed_records(header: BatchHeader, body: bytes) -> Iterator[KeyedRecord]:
    """The records of an unpacked batch, whose header may claim anything."""
    if not 0 <= header.records_count <= len(body) // RECORD_BYTES_MIN:
        raise UnreadableRecordsError(f"{header.records_count} records in {len(body)} bytes")
    return keyed_records(body, header.records_count)


def _emptied(header: BatchHeader) -> CleanedBatch:
    """The batch without records: what it says of its producer and of offsets stays."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK)
    return _sealed(
        header._replace(
            attributes=attributes,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            records_count=0,
        ),
        b"",
    )


def _rebuilt(
    header: BatchHeader, body: bytes, kept: _Survivors, horizon_ms: int | None
) -> CleanedBatch:
    """The batch with the surviving records; `horizon_ms` becomes its base timestamp if given."""
    base_timestamp, attributes = header.base_timestamp, header.attributes
    max_timestamp = header.max_timestamp
    if not header.timestamp_type:
        max_timestamp = base_timestamp + max(timestamp_delta(body, start) for start in kept.starts)
        if not TIMESTAMP_MIN <= max_timestamp <= TIMESTAMP_MAX:
            raise UnreadableRecordsError(f"a record of time {max_timestamp}")
    left = bytearray()
    if horizon_ms is None:
        for start, end in kept:
            left += body[start:end]
    else:
        shift_ms = base_timestamp - horizon_ms
        for start, end in kept:
            left += with_shifted_timestamp(body, start, end, shift_ms)
        base_timestamp, attributes = horizon_ms, attributes | DELETE_HORIZON_MASK
    return _sealed(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            records_count=len(kept),
        ),
        compress(left, Codec(header.codec)),
    )


def _sealed(header: BatchHeader, packed: bytes) -> CleanedBatch:
    """The batch with its new length and CRC."""
    header = header._replace(length=BATCH_LENGTH_MIN + len(packed))
    batch = bytearray(BATCH_HEADER.pack(*header) + packed)
    crc = batch_crc(batch, 0, len(batch))
    pack_into(">I", batch, CRC_POSITION, crc)
    return CleanedBatch(header._replace(crc=crc), batch)
