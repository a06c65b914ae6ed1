"""What is encoded by columns is read back record by record."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fairlead_spark.errors import SinkError
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.writing.outgoing_batches import (
    SEQUENCES,
    BatchShape,
    OutgoingBatch,
    Producer,
    build_batches,
    halve,
)
from fairlead_spark.writing.record_encoding import RecordCells, as_binary, encode_headers
from fairlead_wire.compression import Codec
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import decode_batch

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_700_000_000_000


def build(
    cells: RecordCells, partitions: list[int], *, bytes_max: int = 10**6, codec: Codec = Codec.NONE
) -> list[OutgoingBatch]:
    return list(
        build_batches(
            "t",
            cells,
            np.array(partitions),
            producer=Producer(77, 3),
            sequences={TopicPartition("t", 1): SEQUENCES - 2},
            shape=BatchShape(bytes_max, codec),
            now_ms=NOW_MS,
        )
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_what_they_were(codec: Codec) -> None:
    values: list[Any] = [b"one", None, b"", b"x" * 300, b"y" * 70_000]
    keys: list[Any] = [None, b"k", b"", b"z" * 200, b"q"]
    pairs: list[Any] = [
        [{"key": "a", "value": b"1"}, {"key": "ä", "value": None}],
        None,
        [],
        [{"key": "", "value": b""}],
        [{"key": "h" * 100, "value": b"v" * 1000}] * 70,
    ]
    headers = encode_headers(pa.array(pairs, HEADERS))
    cells = RecordCells(pa.array(values, pa.binary()), pa.array(keys, pa.binary()), headers)
    (batch,) = build(cells, [4] * 5, codec=codec)
    assert (batch.where, batch.records) == (("t", 4), 5)
    read = decode_batch(batch.data)
    assert [each.value for each in read] == values
    assert [each.key for each in read] == keys
    assert [each.headers for each in read] == [
        tuple((pair["key"], pair["value"]) for pair in row or ()) for row in pairs
    ]
    assert [each.offset for each in read] == [0, 1, 2, 3, 4]
    assert {each.timestamp for each in read} == {NOW_MS}
    header = decode_batch_header(batch.data)
    assert (header.codec, header.producer_id, header.producer_epoch) == (codec, 77, 3)


def test_rows_of_a_partition_keep_their_order_and_their_numbers_go_on() -> None:
    rng = random.Random(5)
    partitions = [rng.randrange(3) for _ in range(4000)]
    values = [b"%d " % index + b"." * rng.randrange(40) for index in range(4000)]
    batches = build(RecordCells(pa.array(values)), partitions, bytes_max=4000)
    assert all(len(batch.data) <= 4000 for batch in batches)
    for partition in range(3):
        mine = [each for each in batches if each.where.partition == partition]
        read = [record.value for each in mine for record in decode_batch(each.data)]
        assert read == [
            value for value, at in zip(values, partitions, strict=True) if at == partition
        ]
        sequence = SEQUENCES - 2 if partition == 1 else 0
        for each in mine:
            assert decode_batch_header(each.data).base_sequence == sequence
            sequence = (sequence + each.records) % SEQUENCES


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    values = pa.array([b"a", b"x" * 500, b"b", b"c"])
    assert [each.records for each in build(RecordCells(values), [0] * 4, bytes_max=200)] == [
        1,
        1,
        2,
    ]


def test_no_record_is_larger_than_is_said_of_it() -> None:
    rng = random.Random(2)
    values = pa.array([rng.randbytes(rng.randrange(300)) for _ in range(200)])
    cells = RecordCells(values, values)
    for each, said in zip(build(cells, list(range(200))), cells.sizes_max(), strict=True):
        assert len(each.data) <= 61 + said


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_halves_hold_the_same_records_with_the_same_numbers(codec: Codec) -> None:
    values = pa.array([b"%d" % index for index in range(7)])
    headers = encode_headers(pa.array([[{"key": "k", "value": None}]] * 7, HEADERS))
    (whole,) = build(RecordCells(values, None, headers), [1] * 7, codec=codec)
    halves = halve(whole)
    assert [each.records for each in halves] == [3, 4]
    read = [record for each in halves for record in decode_batch(each.data)]
    assert [each.value for each in read] == values.to_pylist()
    assert {each.headers for each in read} == {(("k", None),)}
    heads = [decode_batch_header(each.data) for each in halves]
    assert [each.base_sequence for each in heads] == [SEQUENCES - 2, 1]
    assert {(each.producer_id, each.producer_epoch, each.codec) for each in heads} == {
        (77, 3, codec)
    }


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["ä", None, ""]),
        pa.array(["ä", None, ""], pa.large_string()),
        pa.array(["ä", None, ""], pa.string_view()),
        pa.array(["ä", None, ""]).dictionary_encode(),
        pa.array(["ä".encode(), None, b""]),
        pa.array(["ä".encode(), None, b""], pa.large_binary()),
        pa.array([b"no", "ä".encode(), None, b""]).slice(1),
    ],
)
def test_text_and_bytes_of_any_arrow_type(column: pa.Array) -> None:
    (batch,) = build(RecordCells(as_binary(column)), [0, 0, 0])
    assert [each.value for each in decode_batch(batch.data)] == ["ä".encode(), None, b""]


def test_headers_of_a_slice() -> None:
    pairs: list[Any] = [[{"key": "no", "value": b""}], None, [{"key": "b", "value": b"2"}]]
    headers = encode_headers(pa.array(pairs, HEADERS).slice(1))
    (batch,) = build(RecordCells(pa.array([b"1", b"2"]), None, headers), [0, 0])
    assert [each.headers for each in decode_batch(batch.data)] == [(), (("b", b"2"),)]


@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_refused(pair: Any) -> None:
    with pytest.raises(SinkError, match="has no key"):
        encode_headers(pa.array([[pair]], HEADERS))
