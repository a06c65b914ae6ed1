"""What an append leaves in the file and in the log."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_batches import (
    LogBench,
    all_headers,
    append,
    as_leader_sent,
    batch,
    flush,
    patched,
    read_headers,
)

from fairlead_broker.disk import Disk
from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.producer_loading import load_producers
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.segment import Segment
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(f"{tmp_path}/t-0")


def test_offsets_and_epoch_are_patched_in_place(bench: LogBench) -> None:
    log = bench.create()
    assert append(log, batch(3), batch(), batch(10), epoch=4) == [0, 3, 4]
    headers = all_headers(log)
    assert [(h.base_offset, h.last_offset) for h in headers] == [(0, 2), (3, 3), (4, 13)]
    assert {h.partition_leader_epoch for h in headers} == {4}
    assert log.log_end_offset == 14


def test_create_time_is_reported_as_none(bench: LogBench) -> None:
    result = bench.create().append_as_leader(batch(2), leader_epoch=0, now_ms=77)
    assert result == (0, 1, -1, 0, False)


def test_log_append_time_stamps_the_batch(bench: LogBench) -> None:
    log = bench.create(message_timestamp_type="LogAppendTime")
    result = log.append_as_leader(batch(timestamp=5), leader_epoch=0, now_ms=77)
    assert result.log_append_time_ms == 77
    (header,) = read_headers(log, 0)
    assert header.max_timestamp == 77
    assert header.base_timestamp == 5
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_an_epoch_is_entered_before_the_first_append(bench: LogBench) -> None:
    log = bench.create()
    append(log, batch(5))
    log.assign_leader_epoch(3)
    assert log.last_leader_epoch == 3
    assert log.end_offset_for_epoch(3) == (3, 5)
    with pytest.raises(InvariantViolation):
        log.assign_leader_epoch(2)


def test_followers_take_batches_as_they_are(bench: LogBench) -> None:
    log = bench.create()
    content = b"".join(
        bytes(part)
        for part in (as_leader_sent(0, 4, epoch=1), as_leader_sent(4, epoch=1), as_leader_sent(5))
    )
    with_epochs = as_leader_sent(5, 2, epoch=6)
    log.append_as_follower(memoryview(content[:360]), now_ms=0)
    log.append_as_follower(memoryview(bytes(with_epochs) + content[:100]), now_ms=0)
    assert [h.base_offset for h in all_headers(log)] == [0, 4, 5]
    assert log.epochs.entries() == [(1, 0), (6, 5)]
    assert log.log_end_offset == 7


def test_followers_refuse_what_goes_back_and_damage(bench: LogBench) -> None:
    log = bench.create()
    log.append_as_follower(as_leader_sent(0, 4), now_ms=0)
    for offset in (0, 3):
        with pytest.raises(InvariantViolation):
            log.append_as_follower(as_leader_sent(offset), now_ms=0)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(patched(as_leader_sent(4), crc=0), now_ms=0)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 4


def test_a_leaders_start_may_lie_inside_the_first_batch(bench: LogBench) -> None:
    """R17."""
    log = bench.create()
    log.restart_at(105)
    log.refusal = None
    log.append_as_follower(as_leader_sent(100, 10), now_ms=0)
    assert (log.log_start_offset, log.log_end_offset) == (105, 110)
    assert read_headers(log, 105)[0].base_offset == 100
    log.close()
    log = bench.load(log_start_offset=105)
    assert (log.log_start_offset, log.log_end_offset) == (105, 110)


def test_a_repeated_batch_gets_its_original_offsets(bench: LogBench) -> None:
    log = bench.create()
    for sequence in range(0, 20, 2):
        append(log, batch(2, producer=(9, 0, sequence)))
    retry = log.append_as_leader(batch(2, producer=(9, 0, 12)), leader_epoch=0, now_ms=0)
    assert retry == (12, 13, -1, 0, True)
    assert log.log_end_offset == 20
    for gap_or_too_old in (batch(2, producer=(9, 0, 8)), batch(2, producer=(9, 0, 22))):
        with pytest.raises(KafkaError) as caught:
            append(log, gap_or_too_old)
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_producer_window_outlives_restart_and_truncation(bench: LogBench) -> None:
    log = bench.create(segment_bytes=500)
    for sequence in range(6):
        append(log, batch(producer=(9, 0, sequence)))
    log.truncate_to(4)
    log.refusal = None
    assert log.append_as_leader(batch(producer=(9, 0, 3)), leader_epoch=0, now_ms=0).is_duplicate
    assert append(log, batch(producer=(9, 0, 4))) == [4]
    log.active.seal()
    log.write_snapshot()
    log.close()
    log = bench.load()
    assert log.append_as_leader(batch(producer=(9, 0, 4)), leader_epoch=0, now_ms=0).is_duplicate


@pytest.mark.parametrize(
    ("config", "batches", "bases"),
    [
        ({"segment_bytes": 400}, [batch()] * 5, [0, 2, 4]),
        ({"segment_ms": 100}, [batch(timestamp=t) for t in (5, 105, 106, 300)], [0, 2, 3]),
        ({"segment_index_bytes": 24, "index_interval_bytes": 1}, [batch()] * 6, [0, 2, 4]),
    ],
    ids=["size", "record time", "full index"],
)
def test_a_segment_is_rolled_by(
    config: dict[str, int], batches: list[memoryview], bases: list[int], bench: LogBench
) -> None:
    log = bench.create(**config)
    for content in batches:
        append(log, memoryview(bytearray(content)))
    assert log.bases[: len(bases)] == bases
    assert [h.base_offset for h in all_headers(log)] == list(range(len(batches)))


def test_records_without_timestamps_roll_by_the_clock(bench: LogBench) -> None:
    log = bench.create(segment_ms=100)
    append(log, batch(timestamp=-1), now_ms=10)
    append(log, batch(timestamp=-1), now_ms=100)
    append(log, batch(timestamp=-1), now_ms=101)
    assert log.bases == [0, 2]


def test_records_without_timestamps_do_not_roll_because_the_broker_has_restarted(
    bench: LogBench,
) -> None:
    """As with Apache Kafka the age begins anew; a log would get a tiny segment at each restart."""
    now_ms = 1_800_000_000_000
    log = bench.create(now_ms=now_ms, segment_ms=100)
    append(log, batch(timestamp=-1), now_ms=now_ms)
    flush(log)
    log.close()
    log = bench.load(now_ms=now_ms + 50, segment_ms=100)
    append(log, batch(timestamp=-1), batch(timestamp=-1), now_ms=now_ms + 149)
    assert log.bases == [0]
    log.restart_at(10)
    log.refusal = None
    append(log, batch(timestamp=-1), batch(timestamp=-1), now_ms=now_ms + 149)
    assert log.bases == [10]
    append(log, batch(timestamp=-1), now_ms=now_ms + 151)
    assert log.bases == [10, 12]


def test_a_replay_of_old_records_does_not_roll_at_every_batch(bench: LogBench) -> None:
    log = bench.create()
    for day in range(5):
        append(log, batch(timestamp=1_357_000_000_000 + day), now_ms=1_800_000_000_000)
    assert log.bases == [0]


def test_a_log_that_begins_anew_knows_no_producer_of_before(bench: LogBench) -> None:
    """Its last batch may lie in what is left out: an older sequence would refuse the next one."""
    log = bench.create(segment_bytes=500)
    append(log, *(batch(producer=(7, 0, at)) for at in range(8)))
    log.restart_at(50)
    assert log.producers.get(7) is None
    log.close()
    assert bench.load().producers.get(7) is None


def test_a_log_that_begins_anew_knows_no_epoch_of_before(bench: LogBench) -> None:
    """Asking with one that its leader has forgotten, it would be sent to begin anew for ever."""
    log = bench.create()
    append(log, batch(), epoch=3)
    log.restart_at(50)
    assert log.last_leader_epoch == -1
    log.close()
    assert bench.load().last_leader_epoch == -1


def test_a_roll_after_a_truncation_forgets_no_producer(bench: LogBench) -> None:
    now_ms = 1_800_000_000_000
    log = bench.create()
    for sequence in range(4):
        append(log, batch(producer=(7, 0, sequence)), now_ms=now_ms)
    log.truncate_to(2)
    log.refusal = None
    log.roll(now_ms + 1_000)
    retry = log.append_as_leader(batch(producer=(7, 0, 1)), leader_epoch=0, now_ms=now_ms)
    assert retry.is_duplicate


def test_each_batch_in_flight_is_known_as_a_repeat_however_often_the_log_was_opened(
    bench: LogBench,
) -> None:
    """A client sends again all that it has heard nothing of, not only the last."""
    log = bench.create()
    for sequence in range(7):
        append(log, batch(producer=(7, 0, sequence)))
    for _ in range(2):
        assert stop_log(log, 0)
        log.close()
        log = bench.load()
        for sequence in range(2, 7):
            repeated = batch(producer=(7, 0, sequence))
            result = log.append_as_leader(repeated, leader_epoch=0, now_ms=0)
            assert (result.first_offset, result.is_duplicate) == (sequence, True)
    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        log.append_as_leader(batch(producer=(7, 0, 1)), leader_epoch=0, now_ms=0)
    log.close()


def test_who_leads_before_its_truncation_is_durable_asks_to_be_asked_again(bench: LogBench) -> None:
    """A follower that is elected within milliseconds; a follower never appends then."""
    log = bench.create()
    append(log, batch(producer=(7, 0, 0)), batch(producer=(7, 0, 1)))
    log.truncate_to(1)
    marker = EndMarker(7, 1, coordinator_epoch=1, is_commit=False, transaction_version=2)
    acts: list[Callable[[], object]] = [
        lambda: log.append_as_leader(batch(), leader_epoch=1, now_ms=0),
        lambda: log.append_end_marker(marker, leader_epoch=1, now_ms=0),
    ]
    for act in acts:
        with pytest.raises(KafkaError) as caught:
            act()
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(InvariantViolation):
        log.append_as_follower(as_leader_sent(1), now_ms=0)
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("first", "then", "is_read"),
    [
        (None, None, False),
        ((7, 0, 0), None, False),
        ((7, 0, 0), (7, 0, 1), False),
        ((7, 0, 0), (7, 1, 0), True),
        ((7, 0, 0), (8, 0, 0), True),
    ],
)
def test_a_cut_that_leaves_some_batch_of_each_producer_does_not_read_the_segment_for_them(
    bench: LogBench,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[int, int, int] | None,
    then: tuple[int, int, int] | None,
    is_read: bool,
) -> None:
    """Header by header that took seconds for a segment of small batches, while everybody waited."""
    log = bench.create()
    nobody = (-1, -1, -1)
    append(log, batch(producer=first or nobody), batch(), batch(producer=then or nobody))
    reads = []

    def noted(
        disk: Disk,
        directory: str,
        producers: ProducerState,
        segments: list[Segment],
        end_offset: int,
        **options: Any,
    ) -> None:
        reads.append(end_offset)
        load_producers(disk, directory, producers, segments, end_offset, **options)

    monkeypatch.setattr("fairlead_broker.log.truncation.load_producers", noted)
    log.truncate_to(2)
    assert bool(reads) == is_read
    known = {entry.producer_id: entry.batches for entry in log.producers}
    assert set(known) == ({7} if first else set())
    assert all(len(batches) == 1 for batches in known.values())


def test_a_log_that_begins_anew_forgets_producers_below_its_start(bench: LogBench) -> None:
    log = bench.create()
    append(log, batch(producer=(7, 0, 0)))
    log.restart_at(100)
    assert len(log.producers) == 0
