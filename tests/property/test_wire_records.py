"""Record batches: round trips, two other implementations, and hostile bytes."""

import random
import struct
import warnings
from typing import Any

import google_crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_wire.compression import Codec
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import Record, decode_batch, encode_batch, iter_batches
from fairlead_wire.zigzag import VARLONG_SIZE_MAX, read_varint, varint

PAYLOADS = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=8), PAYLOADS), max_size=3).map(tuple)
# Producers number the records of a batch from 0.
PRODUCED = st.lists(
    st.tuples(st.integers(0, 2**42), PAYLOADS, PAYLOADS, HEADERS), min_size=1, max_size=12
).map(lambda rows: [Record(index, *row) for index, row in enumerate(rows)])


def aiokafka_batch(records: list[Record], codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for each in records:
        builder.append(each.offset, each.timestamp, each.key, each.value, list(each.headers))
    return bytes(builder.build())


def as_records(batch: Any) -> list[Record]:
    return [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
        for each in batch
    ]


def kafka_python_records(batch: bytes) -> list[Record]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It reads its schemas by a deprecated function.
        from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

    return as_records(KafkaPythonBatch(batch))


@settings(max_examples=120, deadline=None)
@given(
    value=st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300),
    before=st.binary(max_size=3),
)
def test_varints_survive(value: int, before: bytes) -> None:
    encoded = varint(value)
    assert len(encoded) <= VARLONG_SIZE_MAX
    position = len(before)
    decoded = read_varint(before + encoded + b"\xff", position, VARLONG_SIZE_MAX)
    assert decoded == (value, position + len(encoded))


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=25, deadline=None)
@given(records=PRODUCED, base=st.integers(0, 2**62), gaps=st.lists(st.integers(1, 99), min_size=12))
def test_batches_survive(codec: Codec, records: list[Record], base: int, gaps: list[int]) -> None:
    offsets = [base]
    for gap in gaps[1 : len(records)]:
        offsets.append(offsets[-1] + gap)  # As compaction leaves them.
    moved = [each._replace(offset=at) for each, at in zip(records, offsets, strict=True)]
    batch = encode_batch(moved, codec=codec)
    assert decode_batch(batch) == moved
    ((position, header),) = iter_batches(batch)
    assert (position, header.size, header.base_offset) == (0, len(batch), base)
    assert header.last_offset == offsets[-1]


@settings(max_examples=60, deadline=None)
@given(records=PRODUCED)
def test_aiokafka_writes_the_same_bytes(records: list[Record]) -> None:
    assert encode_batch(records) == aiokafka_batch(records, 0)


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=15, deadline=None)
@given(records=PRODUCED)
def test_others_read_what_we_write_and_we_read_what_they_write(
    codec: Codec, records: list[Record]
) -> None:
    ours = encode_batch(records, codec=codec)
    assert kafka_python_records(ours) == records
    assert as_records(DefaultRecordBatch(ours)) == records
    assert decode_batch(aiokafka_batch(records, codec)) == records


@pytest.mark.parametrize("codec", Codec)
def test_damaged_batches_are_refused_or_read(codec: Codec) -> None:
    """With a CRC that fits: otherwise only the CRC would be tested."""
    chooser = random.Random(f"damage {codec}")
    records = [
        Record(index, index, b"k%d" % index, b"v" * index, (("h", b"x"),)) for index in range(20)
    ]
    batch = encode_batch(records, codec=codec)
    for _ in range(400):
        damaged = bytearray(batch)
        for _ in range(chooser.randrange(1, 4)):
            damaged[chooser.randrange(8, len(damaged))] = chooser.randrange(256)
        struct.pack_into(">I", damaged, 17, google_crc32c.value(bytes(damaged[21:])))
        whole = bytes(damaged[: chooser.choice((len(damaged), chooser.randrange(len(damaged))))])
        try:
            decoded = decode_batch(whole, decompressed_max=100_000)
            list(iter_batches(whole))
        except RemoteProtocolError as error:
            assert str(error)
        else:
            assert len(decoded) == decode_batch_header(whole).records_count
