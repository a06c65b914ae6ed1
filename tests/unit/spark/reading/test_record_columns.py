"""Columns decoded at once hold what the record decoder reads one by one."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_spark.reading.record_columns import BatchBody, RecordColumns, decode_records
from fairlead_spark.reading.rows import RowBuilder
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE, TimestampType, decode_batch_header
from fairlead_wire.records import Record, encode_batch

texts = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2)
records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 1 << 50),
        texts,
        texts,
        headers.map(tuple),
    ),
    min_size=1,
    max_size=30,
)


def encode(batches: list[list[Record]], **options: object) -> tuple[bytearray, list[BatchBody]]:
    data, bodies = bytearray(), []
    for batch in batches:
        encoded = encode_batch(batch, **options)  # type: ignore[arg-type]
        header = decode_batch_header(encoded)
        is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        bodies.append(
            BatchBody(
                len(data) + BATCH_HEADER_SIZE,
                len(data) + len(encoded),
                header.records_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if is_appended else None,
            )
        )
        data += encoded
    return data, bodies


def number(batches: list[list[Record]], gap: int = 1) -> list[list[Record]]:
    offset = 5
    numbered: list[list[Record]] = []
    for batch in batches:
        numbered.append([])
        for record in batch:
            numbered[-1].append(record._replace(offset=offset))
            offset += gap
    return numbered


def rows(columns: RecordColumns) -> list[Record]:
    found = []
    for batch in RowBuilder("t", 3, include_headers=True).build(columns):
        assert batch.column(5).type == pa.timestamp("us", tz="UTC")
        table = batch.set_column(5, "timestamp", batch.column(5).cast(pa.int64()))
        for row in table.to_pylist():
            assert (row["topic"], row["partition"]) == ("t", 3)
            pairs = tuple((each["key"], each["value"]) for each in row["headers"] or ())
            found.append(
                Record(row["offset"], row["timestamp"] // 1000, row["key"], row["value"], pairs)
            )
    return found


@settings(deadline=None, max_examples=50)
@given(st.lists(records, min_size=1, max_size=4), st.sampled_from([1, 3, 700]))
def test_columns_are_the_records(batches: list[list[Record]], gap: int) -> None:
    wanted = number(batches, gap)
    data, bodies = encode(wanted)
    assert rows(decode_records(data, bodies)) == [record for batch in wanted for record in batch]


@pytest.mark.parametrize("sizes", [(100, 100), (0, 300), (60, 70)])
def test_runs_of_equal_and_of_unequal_records(sizes: tuple[int, int]) -> None:
    chance = random.Random(7)
    batch = [
        Record(index, 1000 + index // 7, b"k%d" % index, bytes(chance.randint(*sizes)))
        for index in range(20_000)
    ]
    data, bodies = encode([batch])
    columns = decode_records(data, bodies)
    assert columns.offsets.tolist() == list(range(20_000))
    assert columns.keys().to_pylist() == [record.key for record in batch]
    assert columns.values().to_pylist() == [record.value for record in batch]
    assert columns.timestamps_ms.tolist() == [record.timestamp for record in batch]


def test_a_broker_may_have_set_the_time() -> None:
    batch = [Record(0, 10, None, b"a"), Record(1, 30, None, b"b")]
    data, bodies = encode([batch], timestamp_type=TimestampType.LOG_APPEND_TIME)
    columns = decode_records(data, bodies)
    assert columns.timestamps_ms.tolist() == [30, 30]
    assert columns.timestamp_types.tolist() == [1, 1]


def test_a_slice_is_by_offset() -> None:
    data, bodies = encode(number([[Record(0, 1, None, bytes([n])) for n in range(10)]], gap=10))
    columns = decode_records(data, bodies).slice(20, 46)
    assert columns.offsets.tolist() == [25, 35, 45]
    assert columns.values().to_pylist() == [b"\2", b"\3", b"\4"]


def test_no_records() -> None:
    assert len(decode_records(bytearray(b"x"), [])) == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(records, min_size=1, max_size=2), st.data())
def test_damaged_bytes_end_in_an_error_or_in_rows_inside_the_data(
    batches: list[list[Record]], data_of_test: st.DataObject
) -> None:
    data, bodies = encode(number(batches))
    for _ in range(data_of_test.draw(st.integers(1, 5))):
        place = data_of_test.draw(st.integers(bodies[0].start, len(data) - 1))
        data[place] = data_of_test.draw(st.integers(0, 255))
    try:
        columns = decode_records(data, bodies)
        list(RowBuilder("t", 0, include_headers=True).build(columns))
    except RemoteProtocolError:
        return
    assert (columns.value_ends <= len(data)).all()
    assert (np.diff(columns.value_starts) > 0).all()


def test_times_that_spark_cannot_hold_become_the_last_that_it_can() -> None:
    """A producer may write any 64 bits; microseconds must not wrap around to another century."""
    times = (2**63 - 1, -1, -(2**62))
    columns = RecordColumns(
        data=b"",
        offsets=np.arange(3),
        timestamps_ms=np.array(times),
        timestamp_types=np.zeros(3, dtype=np.int32),
        record_ends=np.zeros(3, dtype=np.int64),
        **{
            f"{field}_{part}": np.zeros(3, dtype=bool if part == "nulls" else np.int64)
            for field in ("key", "value")
            for part in ("starts", "ends", "nulls")
        },
    )
    (batch,) = RowBuilder("t", 0, include_headers=False).build(columns)
    micros = batch.column(5).cast(pa.int64()).to_pylist()
    assert micros[1] == -1000
    assert micros[0] > 2**63 - 2000
    assert micros[2] < -(2**63) + 2000
