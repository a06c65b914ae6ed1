"""Records of compacted topics: real batches with a header that has the number of each record.

The observer identifies a record by this number. A tombstone has no value, so it is in a header.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import Record, decode_batch, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead_wire.compression import Codec
    from fairlead_wire.segments import Buffer

NUMBER: Final = "number"


class KeyedEntry(NamedTuple):
    """One record. Two logs agree on an offset that both have if their entries are equal."""

    leader_epoch: int
    sequence: int
    producer_id: int
    producer_epoch: int
    value: int
    """Its number, by which the observer identifies it."""
    key: bytes
    is_tombstone: bool
    timestamp: int


class KeyedBatch(NamedTuple):
    """A reader's view of one batch, which compaction may have emptied."""

    first_offset: int
    next_offset: int
    entries: tuple[tuple[int, KeyedEntry], ...]


def keyed_record(number: int, key: bytes, timestamp: int, *, is_tombstone: bool) -> Record:
    value = None if is_tombstone else b"%d" % number
    return Record(0, timestamp, key, value, ((NUMBER, b"%d" % number),))


def encode_keyed(
    records: Sequence[Record], producer_id: int, producer_epoch: int, sequence: int, codec: Codec
) -> bytes:
    """Return a producer's batch; `sequence` is that of the first record."""
    return encode_batch(
        [record._replace(offset=place) for place, record in enumerate(records)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence if producer_id >= 0 else -1,
    )


def decode_keyed(content: Buffer) -> Iterator[KeyedBatch]:
    """Read whole batches; each is checked against its CRC on the way."""
    position, size = 0, len(content)
    while position < size:
        end = position + decode_batch_header(content, position).size
        yield _decode(bytes(content[position:end]))
        position = end


@lru_cache(maxsize=2000)
def _decode(batch: bytes) -> KeyedBatch:
    """Decode a batch; cached, because a leader, its followers and consumers all read it."""
    header = decode_batch_header(batch)
    entries = []
    for record in decode_batch(batch):
        number = dict(record.headers)[NUMBER]
        assert number is not None
        assert record.key is not None
        sequence = header.base_sequence
        if header.producer_id >= 0:
            sequence += record.offset - header.base_offset
        entry = KeyedEntry(
            header.partition_leader_epoch,
            sequence,
            header.producer_id,
            header.producer_epoch,
            int(number),
            record.key,
            record.value is None,
            record.timestamp,
        )
        entries.append((record.offset, entry))
    return KeyedBatch(header.base_offset, header.next_offset, tuple(entries))
