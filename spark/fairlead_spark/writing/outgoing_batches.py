"""Outgoing records: divided into the batches of a producer, and compressed."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fairlead_spark.offsets import TopicPartition
from fairlead_spark.writing.record_encoding import RecordCells, encode_records
from fairlead_wire.compression import Codec, compress
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    batch_crc,
)
from fairlead_wire.records import decode_batch, encode_batch

PRODUCE_VERSION: Final = 9
SEQUENCES: Final = 2**31
"""Sequence numbers of an idempotent producer; after the last one comes 0 again."""
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17


@dataclass(frozen=True)
class Producer:
    """The producer: the answer of `InitProducerId`."""

    producer_id: int
    producer_epoch: int
    is_transactional: bool = False


@dataclass(frozen=True)
class BatchShape:
    """The form of batches. `bytes_max` is their size before compression."""

    bytes_max: int
    codec: Codec


@dataclass
class OutgoingBatch:
    """One batch of one partition."""

    where: TopicPartition
    data: bytes | bytearray
    records: int


def build_batches(
    topic: str,
    cells: RecordCells,
    partitions: Any,
    *,
    producer: Producer,
    sequences: dict[TopicPartition, int],
    shape: BatchShape,
    now_ms: int,
) -> Iterator[OutgoingBatch]:
    """Yield batches of a topic's rows, those of a partition in the order of the rows.

    `sequences` has the next number of each partition, and is advanced.
    """
    if (partitions[1:] < partitions[:-1]).any():
        # For numbers of 16 bits numpy uses a radix sort, which is ten times as fast.
        is_short = int(partitions.max()) <= np.iinfo(np.int16).max
        order = np.argsort(partitions.astype(np.int16) if is_short else partitions, kind="stable")
        cells, partitions = cells.take(order), partitions[order]
    cuts = _cut(cells.sizes_max(), partitions, shape.bytes_max - BATCH_HEADER_SIZE)
    counts = np.diff(np.append(cuts, len(cells)))
    records = encode_records(cells, np.arange(len(cells)) - np.repeat(cuts, counts))
    _, bounds, data = records.buffers()
    edges = np.frombuffer(bounds, dtype=np.int32)
    body = memoryview(data)
    for first, count in zip(cuts.tolist(), counts.tolist(), strict=True):
        where = TopicPartition(topic, int(partitions[first]))
        sequence = sequences.get(where, 0)
        sequences[where] = (sequence + count) % SEQUENCES
        yield OutgoingBatch(
            where,
            _seal(
                body[edges[first] : edges[first + count]],
                count,
                producer=producer,
                sequence=sequence,
                codec=shape.codec,
                now_ms=now_ms,
            ),
            count,
        )


def halve(batch: OutgoingBatch) -> tuple[OutgoingBatch, OutgoingBatch]:
    """Return two batches of the same records, with the same numbers, of a batch that is too large.

    A half is no repetition of the whole: a broker that has the whole refuses it.
    """
    records = decode_batch(batch.data)
    (_, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, count) = (
        BATCH_HEADER.unpack_from(batch.data)
    )
    middle = count // 2
    halves = []
    for first, part in ((0, records[:middle]), (middle, records[middle:])):
        data = encode_batch(
            [each._replace(offset=index) for index, each in enumerate(part)],
            codec=Codec(attributes & ~TRANSACTIONAL_MASK),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=(sequence + first) % SEQUENCES,
            is_transactional=attributes & TRANSACTIONAL_MASK != 0,
        )
        halves.append(OutgoingBatch(batch.where, data, len(part)))
    return halves[0], halves[1]


def _cut(sizes: Any, partitions: Any, bytes_max: int) -> Any:
    """Return where batches begin: at each new partition, and before one would be too large."""
    runs = np.flatnonzero(np.diff(partitions, prepend=partitions[0] - 1))
    ends = np.cumsum(sizes)
    cuts = []
    for first, behind in zip(runs.tolist(), [*runs[1:].tolist(), len(sizes)], strict=True):
        at = first
        while at < behind:
            cuts.append(at)
            before = int(ends[at] - sizes[at])
            # A record that is larger than a batch gets its own batch.
            fits = int(np.searchsorted(ends, before + bytes_max, side="right"))
            at = max(at + 1, fits)
    return np.array(cuts, dtype=np.int64)


def _seal(
    body: memoryview, count: int, *, producer: Producer, sequence: int, codec: Codec, now_ms: int
) -> bytearray:
    packed = body if codec == Codec.NONE else compress(body, codec)
    batch = bytearray(BATCH_HEADER_SIZE + len(packed))
    BATCH_HEADER.pack_into(
        batch,
        0,
        0,
        BATCH_LENGTH_MIN + len(packed),
        -1,
        MAGIC_V2,
        0,
        codec | TRANSACTIONAL_MASK if producer.is_transactional else codec,
        count - 1,
        now_ms,
        now_ms,
        producer.producer_id,
        producer.producer_epoch,
        sequence,
        count,
    )
    batch[BATCH_HEADER_SIZE:] = packed
    _CRC.pack_into(batch, _CRC_POSITION, batch_crc(batch, 0, len(batch)))
    return batch
