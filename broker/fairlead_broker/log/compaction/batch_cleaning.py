"""What is left of one batch after compaction. Pure.

A record survives if no later record has its key. A tombstone (no value) survives too, until its
batch's *delete horizon* has passed. The first cleaning that finds a tombstone writes the time from
which it may be removed into the batch (attribute bit 6; the base timestamp then holds the horizon,
KIP-534). So a consumer that reads from the beginning has `delete.retention.ms` to see the deletion.
A record without a key, from a time when the topic was not compacted, is removed. Records below the
log's start are removed, too: if a crash set the start back, a deleted key's old value must not be
in the log without its tombstone.

Offsets stay: base offset, last offset, leader epoch, producer id, epoch and sequence of a batch
are kept whichever of its records are removed. A batch without survivors is removed, with two
exceptions, which stay without records. Without the last batch of an active producer, a retry would
be appended twice after a change of leader (`producer_traces`). Without the last batch of a segment,
a reader could not get to the segment's end.

No record of an aborted transaction survives. A marker is kept while its transaction has records in
the log. The cleaning that removes the last of them writes a delete horizon into the marker, too: a
consumer that has read such records before has that long to read the marker. Then the marker is
removed, except for the last one of a segment and the last one with a producer's epoch
(`last_markers`). These keep their record, which Kafka removes, because not every client expects a
control batch without a record.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import pack_into
from typing import Final, NamedTuple

from fairlead_broker.log.batches.keyed_records import (
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
from fairlead_broker.log.compaction.aborted_batches import AbortedBatches
from fairlead_broker.log.compaction.last_markers import LastMarkers
from fairlead_broker.log.compaction.offset_map import OffsetMap
from fairlead_broker.log.producers.end_marker import decode_end
from fairlead_wire.compression import Codec, compress
from fairlead_wire.errors import RemoteProtocolError
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
    """Records that one cleaning has kept and removed; `null_keys` are among the removed."""

    records_kept: int = 0
    records_removed: int = 0
    tombstones_removed: int = 0
    null_keys: int = 0
    last_horizon_ms: int = NO_TIMESTAMP
    """When the last remaining tombstone or marker may be removed; -1 if none remains."""


class CleanedBatch(NamedTuple):
    """A batch as it is written; `data` is the same object that was read if nothing changed."""

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
    """The rules of one cleaning: the newest offset of each key, and the current time.

    `last_offsets` are the last offsets of the batches that must stay for active producers, by
    producer id; for `unsettled` producers all batches must stay. Batches from `end_offset` on are
    not in the map, and are kept unchanged. The log starts at `start_offset`. The caller passes
    batches in the order of their offsets, from the log's beginning on.
    """

    __slots__ = (
        "_aborted",
        "_delete_retention_ms",
        "_end_offset",
        "_last_markers",
        "_last_offsets",
        "_newest",
        "_now_ms",
        "_start_offset",
        "_unsettled",
        "_with_records",
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
        unsettled: frozenset[int] = frozenset(),
        aborted: AbortedBatches | None = None,
        last_markers: LastMarkers | None = None,
    ) -> None:
        self._aborted = AbortedBatches(()) if aborted is None else aborted
        self._last_markers = LastMarkers({}) if last_markers is None else last_markers
        self._with_records: set[int] = set()
        """Producers whose current transaction has records left; its marker comes later."""
        self._newest = newest
        self._end_offset = end_offset
        self._start_offset = start_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._last_offsets = last_offsets
        self._unsettled = unsettled
        self.counts = CleaningCounts()

    def clean(
        self, header: BatchHeader, batch: memoryview, *, is_last: bool
    ) -> CleanedBatch | None:
        """Return what remains of `batch`, None if nothing does. UnreadableRecordsError."""
        if header.base_offset >= self._end_offset:
            return CleanedBatch(header, batch)
        if header.is_control:
            return self._clean_marker(header, batch, is_last=is_last)
        body, kept, has_tombstones = b"", _Survivors(), False
        if not self._aborted.has(header):
            body = unpack_body(header, batch)
            kept, has_tombstones = self._survivors(header, body)
        counts, records_count = self.counts, header.records_count
        counts.records_kept += len(kept)
        counts.records_removed += records_count - len(kept)
        if not len(kept):
            if not (is_last or self._tells_of_producer(header)):
                return None
            return _emptied(header) if records_count else CleanedBatch(header, batch)
        if header.is_transactional:
            self._with_records.add(header.producer_id)
        horizon_ms = None
        if has_tombstones:
            horizon_ms = self._horizon_ms(header)
            counts.last_horizon_ms = max(counts.last_horizon_ms, horizon_ms)
            if header.has_delete_horizon:
                horizon_ms = None
        if len(kept) == records_count and horizon_ms is None:
            return CleanedBatch(header, batch)
        return _rebuilt(header, body, kept, horizon_ms)

    def _tells_of_producer(self, header: BatchHeader) -> bool:
        """Tell whether a data batch may be the one that has to stay for its producer."""
        producer_id = header.producer_id
        return (
            self._last_offsets.get(producer_id) == header.last_offset
            or producer_id in self._unsettled
        )

    def _clean_marker(
        self, header: BatchHeader, batch: memoryview, *, is_last: bool
    ) -> CleanedBatch | None:
        """Return a control batch with its record, or None if it is removed."""
        counts, producer_id = self.counts, header.producer_id
        if producer_id in self._with_records or not _ends_transaction(batch):
            self._with_records.discard(producer_id)
            return CleanedBatch(header, batch)
        horizon_ms = self._horizon_ms(header)
        if not is_last and not self._last_markers.has(header):
            if header.has_delete_horizon and horizon_ms <= self._now_ms:
                counts.records_removed += 1
                return None
            counts.last_horizon_ms = max(counts.last_horizon_ms, horizon_ms)
        if header.has_delete_horizon:
            return CleanedBatch(header, batch)
        body, kept = unpack_body(header, batch), _Survivors()
        kept.starts.append(0)
        kept.ends.append(len(body))
        return _rebuilt(header, body, kept, horizon_ms)

    def _horizon_ms(self, header: BatchHeader) -> int:
        """Return the delete horizon of a batch: the one that it has, or a new one."""
        if header.has_delete_horizon:
            return header.base_timestamp
        return min(self._now_ms + self._delete_retention_ms, HORIZON_MAX)

    def _survivors(self, header: BatchHeader, body: bytes) -> tuple[_Survivors, bool]:
        """Return the records that stay, and whether one of them is a tombstone."""
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
    """Yield the records of a decompressed batch, whose header is not trusted."""
    if not 0 <= header.records_count <= len(body) // RECORD_BYTES_MIN:
        raise UnreadableRecordsError(f"{header.records_count} records in {len(body)} bytes")
    return keyed_records(body, header.records_count)


def _ends_transaction(batch: memoryview) -> bool:
    try:
        return decode_end(batch) is not None
    except RemoteProtocolError as error:
        raise UnreadableRecordsError(f"a control batch: {error}") from error


def _emptied(header: BatchHeader) -> CleanedBatch:
    """Return the batch without records, with the same offsets and producer fields."""
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
    """Return the batch with the surviving records, with `horizon_ms` as delete horizon if given."""
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
    """Return the batch with its new length and CRC."""
    header = header._replace(length=BATCH_LENGTH_MIN + len(packed))
    batch = bytearray(BATCH_HEADER.pack(*header) + packed)
    crc = batch_crc(batch, 0, len(batch))
    pack_into(">I", batch, CRC_POSITION, crc)
    return CleanedBatch(header._replace(crc=crc), batch)
