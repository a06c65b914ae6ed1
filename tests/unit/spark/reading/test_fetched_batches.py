"""What of a fetch is shown, and what a damaged batch says."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_spark.errors import SourceError
from fairlead_spark.reading.fetched_batches import FetchedRecords, find_batches
from fairlead_spark.reading.record_columns import decode_records
from fairlead_wire.compression import Codec
from fairlead_wire.records import (
    ControlType,
    EndOfTransaction,
    Record,
    encode_batch,
    encode_end_of_transaction,
)


def batch(offset: int, *values: bytes, **options: Any) -> bytes:
    return encode_batch(
        [Record(offset + index, 9, None, value) for index, value in enumerate(values)], **options
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return encode_end_of_transaction(
        EndOfTransaction(kind, 0),
        offset=offset,
        timestamp=9,
        producer_id=producer_id,
        producer_epoch=0,
    )


def fetched(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedRecords:
    before = b"what stands before the records in a reply"
    buffer = bytearray(before + b"".join(batches))
    transactions = [SimpleNamespace(producer_id=who, first_offset=at) for who, at in aborted]
    found = find_batches(
        "t-0", buffer, memoryview(buffer)[len(before) :], transactions, is_crc_checked=True
    )
    assert found is not None
    return found


def values(records: FetchedRecords, start: int = 0, until: int = 1 << 40) -> list[bytes]:
    return [
        value
        for group in records.groups(start, until)
        for value in decode_records(group.data, group.bodies)
        .slice(start, until)
        .values()
        .to_pylist()
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec) -> None:
    records = fetched(batch(0, b"a" * 99, b"b", codec=codec), batch(2, b"c", codec=codec))
    assert values(records) == [b"a" * 99, b"b", b"c"]
    assert records.next_offset == 3


def test_packed_and_plain_batches_keep_their_order() -> None:
    codecs = (Codec.NONE, Codec.ZSTD, Codec.GZIP, Codec.NONE, Codec.LZ4)
    records = fetched(*(batch(n, b"%d" % n, codec=codec) for n, codec in enumerate(codecs)))
    assert values(records) == [b"0", b"1", b"2", b"3", b"4"]


def test_only_what_is_in_the_range() -> None:
    records = fetched(batch(0, b"0", b"1"), batch(2, b"2", b"3"), batch(4, b"4"))
    assert values(records, 1, 3) == [b"1", b"2"]


def test_a_batch_that_is_cut_off_waits_for_the_next_fetch() -> None:
    records = fetched(batch(0, b"0"), batch(1, b"1")[:-1])
    assert values(records) == [b"0"]
    assert records.next_offset == 1
    cut_off = bytearray(batch(0, b"0")[:-1])
    assert find_batches("t-0", cut_off, memoryview(cut_off), (), is_crc_checked=True) is None


def test_markers_are_never_shown_but_move_the_position() -> None:
    transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    records = fetched(
        batch(0, b"0", is_transactional=True, **transaction), marker(1, 7, ControlType.COMMIT)
    )
    assert values(records) == [b"0"]
    assert records.next_offset == 2


def test_aborted_batches_are_dropped_until_their_marker() -> None:
    def written(offset: int, value: bytes, producer_id: int) -> bytes:
        return batch(
            offset,
            value,
            is_transactional=True,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )

    records = fetched(
        written(0, b"aborted", 7),
        written(1, b"other", 8),
        marker(2, 7, ControlType.ABORT),
        written(3, b"later", 7),
        marker(4, 8, ControlType.COMMIT),
        marker(5, 7, ControlType.COMMIT),
        aborted=((7, 0),),
    )
    assert values(records) == [b"other", b"later"]


def test_a_damaged_batch_is_named() -> None:
    damaged = bytearray(batch(4, b"value"))
    damaged[-1] ^= 1
    with pytest.raises(SourceError, match=r"t-0: the batch at offset 4 is damaged \(CRC"):
        values(fetched(batch(3, b"3"), bytes(damaged)))


def test_damaged_compression_is_named() -> None:
    whole = bytearray(batch(4, b"value" * 50, codec=Codec.ZSTD))
    whole[70] ^= 255
    records = fetched(bytes(whole))
    records.is_crc_checked = False
    with pytest.raises(SourceError, match="the batch at offset 4 is damaged"):
        values(records)


def test_a_marker_that_cannot_be_read_is_damage() -> None:
    broken = encode_batch(
        [Record(2, 9, b"k", b"v")], producer_id=7, is_transactional=True, is_control=True
    )
    written = batch(0, b"no", b"no", producer_id=7, is_transactional=True)
    with pytest.raises(SourceError, match=r"t-0: .* offset 2 is damaged \(a control batch"):
        values(fetched(written, broken, aborted=((7, 0),)))
