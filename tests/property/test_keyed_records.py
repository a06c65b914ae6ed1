"""The fast walk of compaction against the decoder of whole records, and against garbage."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from log_batches import record_batch

from fairlead_broker.log.batches.keyed_records import (
    UnreadableRecordsError,
    keyed_records,
    timestamp_delta,
    unpack_body,
    with_shifted_timestamp,
)
from fairlead_wire.compression import Codec
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import Record

VALUES = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 100_000),
        st.integers(-1, 2**45),
        VALUES,
        VALUES,
        st.lists(st.tuples(st.text(max_size=4), VALUES), max_size=2),
    ),
    min_size=1,
    max_size=12,
)


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(-(2**44), 2**62))
def test_it_finds_what_the_decoder_finds(rows: list[Any], codec: Codec, shift_ms: int) -> None:
    offset, records = 0, []
    for step, timestamp, key, value, headers in rows:
        offset += step
        records.append(Record(offset, timestamp, key, value, tuple(headers)))
    batch = record_batch(*records, codec=codec)
    header = decode_batch_header(batch)
    body = unpack_body(header, batch)
    found = list(keyed_records(body, len(records)))
    assert found[0][0] == 0
    assert found[-1][1] == len(body)
    for record, (start, end, key, is_tombstone, offset_delta) in zip(records, found, strict=True):
        assert key == record.key
        assert is_tombstone == (record.value is None)
        assert header.base_offset + offset_delta == record.offset
        assert header.base_timestamp + timestamp_delta(body, start) == record.timestamp
        shifted = with_shifted_timestamp(body, start, end, shift_ms)
        (again,) = keyed_records(shifted, 1)
        assert again[2:] == (key, is_tombstone, offset_delta)
        assert timestamp_delta(shifted, 0) == timestamp_delta(body, start) + shift_ms


@given(st.binary(max_size=300), st.integers(0, 20))
def test_garbage_is_refused_and_nothing_else_happens(body: bytes, count: int) -> None:
    with suppress(UnreadableRecordsError):
        found = list(keyed_records(body, count))
        assert len(found) == count
        assert [end for _, end, *_ in found][-1:] == ([len(body)] if count else [])


@given(RECORDS, st.integers(0, 2_000), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_read_within_bounds(
    rows: list[Any], at: int, byte: int
) -> None:
    records = [Record(n, row[1], row[2], row[3]) for n, row in enumerate(rows)]
    body = bytearray(bytes(record_batch(*records))[61:])
    body[at % len(body)] = byte
    with suppress(UnreadableRecordsError):
        for start, end, key, *_ in keyed_records(bytes(body), len(records)):
            assert 0 <= start < end <= len(body)
            assert key is None or len(key) <= end - start
