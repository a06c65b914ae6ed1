"""What compaction leaves of one batch."""

import tracemalloc
from collections.abc import Iterable

import pytest
from log_batches import patched, record_batch
from present import present

from fairlead_broker.log.batches.keyed_records import UnreadableRecordsError
from fairlead_broker.log.compaction.batch_cleaning import BatchCleaning
from fairlead_broker.log.compaction.last_markers import LastMarkers
from fairlead_broker.log.compaction.offset_map import OffsetMap
from fairlead_wire.compression import Codec
from fairlead_wire.record_batch import BatchHeader, TimestampType, decode_batch_header
from fairlead_wire.records import (
    ControlType,
    EndOfTransaction,
    Record,
    decode_batch,
    encode_end_of_transaction,
)

DAY_MS = 86_400_000
NOW_MS = 1_000_000
RECORDS = [
    Record(10, 500, b"a", b"1"),
    Record(11, 700, b"b", b"2", (("h", b"x"), ("n", None))),
    Record(12, 600, b"long " * 20, b"3" * 300),
]


def cleaning(
    newest: dict[bytes, int],
    *,
    now_ms: int = NOW_MS,
    end_offset: int = 100,
    last_offsets: Iterable[tuple[int, int]] = (),
    last_markers: LastMarkers | None = None,
) -> BatchCleaning:
    keys = OffsetMap(keys_expected=10, bytes_max=1_000, salt=b"s")
    for key, offset in newest.items():
        assert keys.put(key, offset)
    return BatchCleaning(
        keys,
        end_offset=end_offset,
        now_ms=now_ms,
        delete_retention_ms=DAY_MS,
        last_offsets=dict(last_offsets),
        last_markers=last_markers,
    )


def clean(
    rules: BatchCleaning, content: bytes | bytearray | memoryview, *, is_last: bool = False
) -> tuple[BatchHeader, list[Record], bool] | None:
    content = memoryview(bytes(content))
    result = rules.clean(decode_batch_header(content), content, is_last=is_last)
    if result is None:
        return None
    # What is answered as the header is what the bytes say, CRC and all.
    assert decode_batch_header(result.data) == result.header
    return result.header, decode_batch(result.data), result.data is content


@pytest.mark.parametrize("codec", list(Codec))
def test_superseded_records_go_and_the_rest_stays_as_it_was(codec: Codec) -> None:
    content = record_batch(
        *RECORDS,
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        partition_leader_epoch=3,
    )
    before = decode_batch_header(content)
    header, records, _ = present(clean(cleaning({b"b": 20, b"a": 10}), content))
    assert records == [RECORDS[0], RECORDS[2]]
    assert (header.base_offset, header.last_offset) == (10, 12)
    assert header.last_sequence == before.last_sequence == 42
    assert header[9:12] == before[9:12]
    assert header.partition_leader_epoch == 3
    assert header.codec == codec
    assert header.max_timestamp == 600


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_nothing_is_not_touched(codec: Codec) -> None:
    _, records, is_same = present(
        clean(cleaning({b"a": 10, b"c": 90}), record_batch(*RECORDS, codec=codec))
    )
    assert is_same
    assert records == RECORDS


def test_a_dead_batch_goes_unless_somebody_needs_its_header() -> None:
    newest = {b"a": 50, b"b": 51, b"long " * 20: 52}
    content = record_batch(
        *RECORDS, codec=Codec.ZSTD, producer_id=7, producer_epoch=2, base_sequence=40
    )
    assert clean(cleaning(newest), content) is None
    assert clean(cleaning(newest, last_offsets={7: 60, 8: 12}.items()), content) is None
    for left in (
        clean(cleaning(newest, last_offsets={7: 12}.items()), content),
        clean(cleaning(newest), content, is_last=True),
    ):
        header, records, _ = present(left)
        assert records == []
        assert (header.base_offset, header.last_offset, header.last_sequence) == (10, 12, 42)
        assert (header.records_count, header.codec, header.size) == (0, 0, 61)
        assert header.max_timestamp == -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_tombstone_waits_for_its_horizon(codec: Codec) -> None:
    tombstones = [Record(10, 500, b"a", None), Record(11, 900, b"b", b"2")]
    newest = {b"a": 10, b"b": 11}
    rules = cleaning(newest)
    content = memoryview(bytes(record_batch(*tombstones, codec=codec)))
    first = present(rules.clean(decode_batch_header(content), content, is_last=False))
    assert first.header.has_delete_horizon
    assert first.header.base_timestamp == NOW_MS + DAY_MS
    assert rules.counts.last_horizon_ms == NOW_MS + DAY_MS
    # The timestamps of the records are relative to the horizon now, and the same.
    assert decode_batch(first.data) == tombstones
    assert first.header.max_timestamp == 900
    later = cleaning(newest, now_ms=NOW_MS + DAY_MS - 1)
    _, records, _ = present(clean(later, first.data))
    assert records == tombstones
    assert later.counts.last_horizon_ms == NOW_MS + DAY_MS
    after = cleaning(newest, now_ms=NOW_MS + DAY_MS)
    _, records, _ = present(clean(after, first.data))
    assert records == tombstones[1:]
    assert after.counts.tombstones_removed == 1


def test_records_without_a_key_go_and_are_counted() -> None:
    rules = cleaning({b"a": 10})
    content = record_batch(Record(10, 1, b"a", b"1"), Record(11, 1, None, b"2"))
    assert present(clean(rules, content))[1] == [Record(10, 1, b"a", b"1")]
    assert rules.counts.null_keys == rules.counts.records_removed == 1


def test_an_empty_key_is_a_key() -> None:
    content = record_batch(Record(10, 1, b"", b"1"), Record(11, 1, b"\0", b"2"))
    assert present(clean(cleaning({b"": 11}), content))[1] == [Record(11, 1, b"\0", b"2")]


def test_what_the_map_does_not_cover_is_not_touched() -> None:
    content = record_batch(Record(100, 1, b"a", None), Record(101, 1, None, b"2"))
    assert present(clean(cleaning({b"a": 500}), content))[2]


def marker(
    offset: int, *, producer_id: int = 7, epoch: int = 0, kind: ControlType = ControlType.COMMIT
) -> bytes:
    return encode_end_of_transaction(
        EndOfTransaction(kind, 3),
        offset=offset,
        timestamp=5,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def transactional(offset: int, key: bytes = b"a", *, producer_id: int = 7) -> memoryview:
    return record_batch(
        Record(offset, 1, key, b"v"),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_waits_for_its_horizon_once_its_records_are_gone(kind: ControlType) -> None:
    before = decode_batch(marker(11, kind=kind))
    rules = cleaning({b"a": 50})
    assert clean(rules, transactional(10)) is None
    header, records, _ = present(clean(rules, marker(11, kind=kind)))
    assert header.has_delete_horizon
    assert header.base_timestamp == rules.counts.last_horizon_ms == NOW_MS + DAY_MS
    # The time of the record is relative to the horizon now, and the same.
    assert records == before
    assert header.max_timestamp == 5
    noted = cleaning({b"a": 50})
    content = present(
        noted.clean(decode_batch_header(marker(11)), memoryview(marker(11)), is_last=False)
    )
    later = cleaning({}, now_ms=NOW_MS + DAY_MS - 1)
    _, records, _ = present(clean(later, content.data))
    assert records == decode_batch(marker(11))
    # The horizon is noted once.
    assert later.counts.last_horizon_ms == NOW_MS + DAY_MS
    after = cleaning({}, now_ms=NOW_MS + DAY_MS)
    assert clean(after, content.data) is None
    assert after.counts.records_removed == 1
    assert after.counts.last_horizon_ms == -1


def test_a_marker_stays_while_records_of_its_transaction_are_left() -> None:
    rules = cleaning({b"a": 10, b"b": 60}, now_ms=NOW_MS)
    assert present(clean(rules, transactional(10, b"a")))[2]
    # One of another producer, and an earlier batch of this one that is gone.
    assert clean(rules, transactional(11, b"b", producer_id=8)) is None
    assert clean(rules, transactional(12, b"b")) is None
    assert present(clean(rules, marker(13)))[2]
    assert not present(clean(rules, marker(14, producer_id=8)))[2]
    # The next transaction of the producer begins behind that marker.
    assert not present(clean(rules, marker(15)))[2]


def test_a_batch_that_compaction_emptied_holds_no_marker() -> None:
    rules = cleaning({b"a": 50}, last_offsets={7: 10}.items())
    assert present(clean(rules, transactional(10)))[1] == []
    assert present(clean(rules, marker(11)))[0].has_delete_horizon


def test_the_last_marker_of_a_segment_or_of_a_producer_stays_whole() -> None:
    rules = cleaning({})
    content = present(
        rules.clean(decode_batch_header(marker(11)), memoryview(marker(11)), is_last=False)
    )
    after = cleaning({}, now_ms=NOW_MS + DAY_MS)
    assert present(clean(after, content.data, is_last=True))[2]
    # What may not go needs no cleaning of its own.
    assert after.counts.last_horizon_ms == -1
    last = LastMarkers({7: 0})
    last.note(decode_batch_header(marker(11)))
    last.note(decode_batch_header(marker(11, producer_id=8)))
    after = cleaning({}, now_ms=NOW_MS + DAY_MS, last_markers=last)
    assert present(clean(after, content.data))[2]
    assert after.counts.last_horizon_ms == -1
    # A newer one of this epoch tells the same.
    last.note(decode_batch_header(marker(20)))
    assert clean(cleaning({}, now_ms=NOW_MS + DAY_MS, last_markers=last), content.data) is None
    # In another epoch the producer has written since.
    newer = cleaning({}, now_ms=NOW_MS + DAY_MS, last_markers=LastMarkers({7: 1}))
    assert clean(newer, content.data) is None


def test_other_control_batches_are_kept() -> None:
    content = record_batch(Record(10, 1, b"\0\0\0\5", b"1"), is_control=True)
    assert present(clean(cleaning({}), content))[2]


def test_a_marker_that_is_unreadable_is_told() -> None:
    content = record_batch(Record(10, 1, b"\0", b"1"), is_control=True, is_transactional=True)
    with pytest.raises(UnreadableRecordsError, match="a control batch"):
        clean(cleaning({}), content)


def test_the_time_of_an_append_is_kept() -> None:
    content = record_batch(*RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    header, records, _ = present(clean(cleaning({b"b": 20}), content))
    assert {record.timestamp for record in records} == {header.max_timestamp} == {700}


def test_unreadable_records_are_told() -> None:
    content = bytearray(record_batch(*RECORDS))
    for damage in (b"\xff" * 4, b"\x00" * 4):
        broken = bytes(content[:61]) + damage + bytes(content[65:])
        header = decode_batch_header(broken)
        with pytest.raises(UnreadableRecordsError):
            cleaning({}).clean(header, memoryview(broken), is_last=False)
    with pytest.raises(UnreadableRecordsError):
        header = decode_batch_header(content)._replace(records_count=10**9)
        cleaning({}).clean(header, memoryview(bytes(content)), is_last=False)


def test_a_map_has_an_exact_bound() -> None:
    keys = OffsetMap(keys_expected=10**12, bytes_max=24 * 100, salt=b"s")
    assert keys.capacity == 75
    names = [b"%d" % n * (1 + n % 30) for n in range(76)]
    assert [keys.put(name, at) for at, name in enumerate(names)] == [True] * 75 + [False]
    # Known ones may still be raised.
    assert keys.put(names[3], 1_000)
    assert [keys.newest(name) for name in names] == [0, 1, 2, 1_000, *range(4, 75), -1]


def test_a_million_tiny_keys_cost_little_more_than_their_bytes() -> None:
    """A compressed batch may hold millions; tuples of all of them took 30 times their bytes."""
    count = 30_000
    content = record_batch(
        *(Record(at, 500, b"%x" % at, b"") for at in range(count)), codec=Codec.ZSTD
    )
    rules = cleaning({b"1": count + 5}, end_offset=count + 10)
    tracemalloc.start()
    try:
        result = present(rules.clean(decode_batch_header(content), content, is_last=False))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.header.records_count == count - 1
    assert peak < 60 * count


def test_timestamps_that_no_header_can_hold_are_unreadable_not_a_crash() -> None:
    late = patched(record_batch(*RECORDS), base_timestamp=2**63 - 1)
    with pytest.raises(UnreadableRecordsError, match="a record of time"):
        clean(cleaning({b"b": 20}), late)
    early = patched(record_batch(Record(0, 5, b"k", None)), base_timestamp=-(2**63))
    with pytest.raises(UnreadableRecordsError, match="a timestamp of 0 more than its batch"):
        clean(cleaning({}), early)


def test_an_endless_timestamp_is_unreadable_not_a_crash() -> None:
    content = bytearray(record_batch(Record(0, 500, b"a", b"1"), Record(1, 500, b"b", b"2")))
    # The first record (its length and timestamp take a byte each) with a timestamp of twelve bytes.
    content[61] += 2 * 11
    content[63:63] = b"\x80" * 11
    endless = patched(memoryview(content), length=len(content) - 12)
    with pytest.raises(UnreadableRecordsError, match="timestamp"):
        clean(cleaning({b"b": 20}), endless)
