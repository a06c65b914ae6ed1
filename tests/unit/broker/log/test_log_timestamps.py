"""Offsets by timestamp, exact inside batches, compressed or not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from log_batches import LogBench, append, batch, patched, record_batch
from present import present

from fairlead_broker.limits import WALKED_RECORDS_MAX
from fairlead_broker.log.batches.record_walk import RecordSummary, walk_records
from fairlead_broker.log.log import Log
from fairlead_broker.log.segment import Segment
from fairlead_wire.compression import Codec
from fairlead_wire.record_batch import BatchHeader
from fairlead_wire.records import Record
from fairlead_wire.segments import Buffer

TIMES = [[100, 130, 120], [110, 90], [200, 210, 205], [150], [205, 300, 1]]


@pytest.fixture(params=list(Codec))
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    log = LogBench(f"{tmp_path}/t-0").create(
        segment_bytes=400, index_interval_bytes=50, message_timestamp_after_max_ms=10**6
    )
    for times in TIMES:
        records = [Record(at, time, b"k", b"v" * 20) for at, time in enumerate(times)]
        append(log, record_batch(*records, codec=request.param))
    return log


FLAT = [time for times in TIMES for time in times]


def test_the_first_record_at_or_after_the_timestamp(log: Log) -> None:
    for target in range(302):
        expected = next((at for at, time in enumerate(FLAT) if time >= target), None)
        found = log.offset_for_timestamp(target, end_offset=len(FLAT))
        assert (None if found is None else found.offset) == expected
        if found is not None:
            assert found.timestamp_ms == FLAT[found.offset]
            assert found.leader_epoch == 0


def test_the_end_offset_hides_uncommitted_records(log: Log) -> None:
    assert log.offset_for_timestamp(200, end_offset=5) is None
    assert present(log.offset_for_timestamp(200, end_offset=6)).offset == 5
    assert log.offset_for_timestamp(300, end_offset=10) is None


def test_deleted_records_are_not_found(log: Log) -> None:
    log.advance_log_start_offset(6)
    assert present(log.offset_for_timestamp(0, end_offset=12)).offset == 6


def test_the_largest_timestamp(log: Log) -> None:
    assert present(log.offset_of_max_timestamp())[:2] == (300, 10)


def test_an_empty_log_has_none(tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/e-0").create()
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(0, end_offset=0) is None


def test_log_append_time_answers_the_first_record_of_the_batch(tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/a-0").create(message_timestamp_type="LogAppendTime")
    for now_ms in (100, 200):
        records = [Record(at, 5, None, b"v") for at in range(3)]
        append(log, record_batch(*records), now_ms=now_ms)
    assert log.offset_for_timestamp(101, end_offset=6) == (200, 3, 0)


def test_a_batch_that_unpacks_to_too_much_is_answered_by_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.log.lookup.LOOKUP_DECOMPRESSED_MAX", 1_000)
    log = LogBench(f"{tmp_path}/b-0").create()
    records = [Record(at, 1_000 + at, None, bytes(1_000)) for at in range(3)]
    append(log, record_batch(*records, codec=Codec.ZSTD))
    assert present(log.offset_for_timestamp(1_002, end_offset=3)).offset == 0


def test_a_batch_of_too_many_records_is_not_looked_into(tmp_path: Path) -> None:
    """It would hold up the loop; the answer is where it begins, too early rather than too late."""
    log = LogBench(f"{tmp_path}/t-0").create(max_message_bytes=1 << 30)
    count = WALKED_RECORDS_MAX + 1
    append(log, record_batch(*(Record(at, at, b"", b"") for at in range(count))))
    append(log, record_batch(Record(0, count + 5, b"", b"")))
    assert log.offset_for_timestamp(900, end_offset=count + 1) == (count - 1, 0, 0)
    assert present(log.offset_for_timestamp(count, end_offset=count + 1)).offset == count


def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note each batch whose records are looked at."""
    walks = []

    def noted(header: BatchHeader, batch: Buffer, *, max_size: int) -> Iterator[RecordSummary]:
        walks.append(header.base_offset)
        return walk_records(header, batch, max_size=max_size)

    monkeypatch.setattr("fairlead_broker.log.lookup.walk_records", noted)
    return walks


def test_a_batch_without_the_record_that_it_claims_is_answered_by_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One small request could else have very many batches unpacked, while everybody waits."""
    log = LogBench(f"{tmp_path}/t-0").create(message_timestamp_after_max_ms=10**6)
    records = [Record(at, 1_000, None, b"v") for at in range(2)]
    for _ in range(20):
        log.append_as_follower(
            patched(
                record_batch(*records, codec=Codec.ZSTD),
                max_timestamp=9_000,
                base_offset=log.log_end_offset,
                partition_leader_epoch=0,
            ),
            now_ms=1_000,
        )
    walks = unpacked(monkeypatch)
    assert log.offset_for_timestamp(5_000, end_offset=40) == (9_000, 0, 0)
    assert log.offset_of_max_timestamp() == (9_000, 0, 0)
    log.advance_log_start_offset(3)
    assert log.offset_for_timestamp(5_000, end_offset=40) == (9_000, 4, 0)
    assert walks == [0, 0, 2, 4]


def test_so_many_batches_are_gone_through_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two entries of a time index there may be any number that are not late enough."""
    monkeypatch.setattr("fairlead_broker.log.lookup.LOOKUP_BATCHES_MAX", 100)
    log = LogBench(f"{tmp_path}/t-0").create(index_interval_bytes=50)
    append(log, *(record_batch(Record(0, 1_000, None, b"v")) for _ in range(300)))
    append(log, record_batch(Record(0, 2_000, None, b"v")))
    found = present(log.offset_for_timestamp(2_000, end_offset=301))
    assert (found.timestamp_ms, found.offset) == (2_000, 100)
    assert present(log.offset_for_timestamp(1_000, end_offset=301)).offset == 0
    assert log.offset_for_timestamp(2_000, end_offset=100) is None


def test_it_ends_after_its_batches_also_where_the_last_of_them_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its header that one fits, and none of its records is left: the count must not pass by."""
    monkeypatch.setattr("fairlead_broker.log.lookup.LOOKUP_BATCHES_MAX", 3)
    log = LogBench(f"{tmp_path}/t-0").create(message_timestamp_after_max_ms=10**6)
    append(log, *(record_batch(Record(0, 1_000, None, b"v")) for _ in range(3)))
    records = [Record(0, 3_000, None, b"v"), Record(1, 1_000, None, b"v")]
    append(log, record_batch(*records))
    append(log, *(record_batch(Record(0, 1_000, None, b"v")) for _ in range(5)))
    append(log, record_batch(Record(0, 2_000, None, b"v")))
    log.advance_log_start_offset(4)
    # Three batches before the start, then the cut one: the next is as far as the lookup goes.
    assert log.offset_for_timestamp(2_000, end_offset=11) == (2_000, 5, 0)


def test_segments_that_retention_has_yet_to_take_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of thousands that DeleteRecords has left were walked through, while everybody waits."""
    log = LogBench(f"{tmp_path}/t-0").create(segment_bytes=100)
    append(log, *(record_batch(Record(0, 1_000, None, b"v")) for _ in range(10)))
    log.advance_log_start_offset(9)
    looked_at = []

    def largest_timestamp(segment: Segment) -> int:
        looked_at.append(segment.base_offset)
        return 1_000

    monkeypatch.setattr(Segment, "largest_timestamp", largest_timestamp)
    assert present(log.offset_for_timestamp(1_000, end_offset=10)).offset == 9
    assert looked_at == [9]


@pytest.mark.parametrize(
    ("start", "expected"),
    [(1, (119, 20)), (3, (119, 20)), (5, (119, 20)), (20, (119, 20)), (21, None)],
)
def test_the_largest_timestamp_of_a_deleted_record_hides_no_other(
    tmp_path: Path, start: int, expected: tuple[int, int] | None
) -> None:
    """Who asked for it was told that the log has no record."""
    log = LogBench(f"{tmp_path}/t-0").create(
        segment_bytes=400, message_timestamp_after_max_ms=10**6
    )
    for time in (5_000, *range(100, 120)):
        append(log, record_batch(Record(0, time, b"k", b"v" * 20)))
    log.advance_log_start_offset(start)
    for is_hurried in (False, True):
        found = log.offset_of_max_timestamp(is_hurried=is_hurried)
        assert (None if found is None else found[:2]) == expected


def test_the_largest_timestamp_behind_a_start_within_the_only_segment(tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(message_timestamp_after_max_ms=10**6)
    records = [Record(at, time, None, b"v") for at, time in enumerate((5_000, 100, 300))]
    append(log, record_batch(*records))
    log.advance_log_start_offset(1)
    assert present(log.offset_of_max_timestamp())[:2] == (100, 1)
    append(log, *(record_batch(Record(0, time, None, b"v")) for time in (90, 250, 200)))
    assert present(log.offset_of_max_timestamp())[:2] == (250, 4)


def test_who_is_in_a_hurry_unpacks_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    walks = unpacked(monkeypatch)
    for target in range(302):
        exact = next((at for at, time in enumerate(FLAT) if time >= target), None)
        found = log.offset_for_timestamp(target, end_offset=len(FLAT), is_hurried=True)
        if exact is None:
            assert found is None
        else:
            assert found is not None
            assert found.offset <= exact < found.offset + 3
            assert found.timestamp_ms >= target
    assert present(log.offset_of_max_timestamp(is_hurried=True))[:2] == (300, 9)
    assert walks == []


@pytest.mark.parametrize(
    ("timestamp_delta", "offset_delta"),
    [(3 * 2**62, 0), (-(2**63), 0), (500, 2), (500, -1), (500, 2**62)],
)
def test_records_with_impossible_numbers_are_answered_by_their_batchs_start(
    timestamp_delta: int, offset_delta: int, tmp_path: Path
) -> None:
    """They fit no answer, and the connection of whoever asked would be closed."""
    log = LogBench(f"{tmp_path}/t-0").create()
    append(log, record_batch(Record(0, 10, None, b"v")))
    fields = b"\0" + long_varint(timestamp_delta) + long_varint(offset_delta) + b"\x01\x02v\0"
    content = batch(2, timestamp=1_000, body=2 * (long_varint(len(fields)) + fields))
    told = {"max_timestamp": 9_000, "base_offset": 1, "partition_leader_epoch": 0}
    log.append_as_follower(patched(content, base_timestamp=-5, **told), now_ms=0)
    assert log.offset_for_timestamp(100, end_offset=3) == (9_000, 1, 0)
    assert log.offset_of_max_timestamp() == (9_000, 1, 0)


def long_varint(value: int) -> bytes:
    folded = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while folded > 127:
        encoded.append(folded & 127 | 128)
        folded >>= 7
    encoded.append(folded)
    return bytes(encoded)
