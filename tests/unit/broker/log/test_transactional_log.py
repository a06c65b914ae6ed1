"""Transactions in the files of a log: what cutting, crashing and damage leave of them."""

import random
from pathlib import Path
from typing import Any

import pytest
from counting_disk import CountingDisk
from log_batches import LogBench, append, as_leader_sent, batch, flush, patched, record_batch
from present import present

from fairlead_broker.log import flush as write_out
from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.log import Log
from fairlead_broker.log.producer_loading import load_producers, snapshot_offsets
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.records import Record

CONFIG: dict[str, Any] = {
    "segment_bytes": 700,
    "index_interval_bytes": 150,
    "file_delete_delay_ms": 0,
}


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(str(tmp_path / "t-0"))


def put(log: Log, producer: int, sequence: int = 0) -> int:
    guard = log.producers.begin_verification(producer, 0, sequence, supports_epoch_bump=False)
    content = record_batch(
        Record(0, 1_000, b"k", b"v" * 100),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    return log.append_as_leader(content, leader_epoch=0, now_ms=1_000, guard=guard).first_offset


def end(log: Log, producer: int, *, commits: bool = False) -> int:
    marker = EndMarker(producer, 0, 0, commits, 1)
    return log.append_end_marker(marker, leader_epoch=0, now_ms=1_000).first_offset


def stable(log: Log, high_watermark: int) -> int:
    return log.producers.last_stable_offset(high_watermark)


def told(log: Log) -> list[tuple[int, int, int]]:
    found = log.aborted_transactions(0, log.log_end_offset)
    return [(each.producer_id, each.first_offset, each.last_offset) for each in found]


def test_a_marker_that_is_cut_off_opens_its_transaction_again(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    begun = put(log, 1)
    marker = end(log, 1)
    assert told(log) == [(1, begun, marker)]
    log.truncate_to(marker)
    log.refusal = None
    assert told(log) == []
    assert log.producers.transaction_of(1) == begun
    append(log, batch(3))
    assert stable(log, log.log_end_offset) == begun
    end(log, 1, commits=True)
    assert stable(log, log.log_end_offset) == log.log_end_offset
    assert told(log) == []


def opened_below_start(bench: LogBench) -> Log:
    """A follower's log whose start lies inside its first batch (R17), which opens a transaction."""
    log = bench.create(**CONFIG)
    log.restart_at(5)
    log.refusal = None
    opening = record_batch(
        *(Record(at, 1_000, b"k", b"v") for at in range(5)),
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append_as_follower(patched(opening, base_offset=3, partition_leader_epoch=0), now_ms=0)
    assert stable(log, 8) == 3
    return log


def test_a_cut_forgets_no_transaction_that_began_below_the_logs_start(bench: LogBench) -> None:
    log = opened_below_start(bench)
    log.append_as_follower(as_leader_sent(8), now_ms=0)
    log.truncate_to(8)
    assert (log.log_start_offset, log.log_end_offset) == (5, 8)
    assert stable(log, 8) == 3


def test_recovery_forgets_no_transaction_that_began_below_the_logs_start(bench: LogBench) -> None:
    log = opened_below_start(bench)
    log.roll(1_000)
    log.append_as_follower(as_leader_sent(8), now_ms=0)
    log.write_epochs()
    log.close()
    for snapshot in log.directory.glob("*.snapshot"):
        # Its name was durable before its content was.
        snapshot.write_bytes(b"")
    order = RecoveryOrder(bench.directory, 8, 5, CONFIG["index_interval_bytes"])
    assert not recover_log(bench.disk, order, now_ms=1_000).reason
    assert stable(bench.load(log_start_offset=5, **CONFIG), 9) == 3


def test_what_was_cut_off_whole_holds_nothing_back(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    append(log, batch(2))
    begun = put(log, 1)
    end(log, 1)
    log.truncate_to(begun)
    log.refusal = None
    append(log, batch(1), batch(1), batch(1))
    assert stable(log, begun + 1) == begun + 1


def test_a_cut_forgets_no_end_below_it_that_is_not_committed(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    begun = put(log, 1)
    marker = end(log, 1, commits=True)
    log.roll(1_000)
    append(log, batch(2))
    log.truncate_to(marker + 1)
    assert stable(log, marker) == begun
    assert stable(log, marker + 1) == marker + 1


@pytest.mark.parametrize("damage", ["cut", "version", "foreign", "unordered"])
def test_a_damaged_transaction_index_is_derived_again(bench: LogBench, damage: str) -> None:
    log = bench.create(**CONFIG)
    # It begins in a segment before: the snapshot at the base of the next one says so.
    begun = put(log, 1)
    log.roll(1_000)
    put(log, 2)
    markers = [end(log, 1), end(log, 2)]
    append(log, batch(2))
    log.roll(1_000)
    expected = told(log)
    assert [each[1:] for each in expected] == [(begun, markers[0]), (begun + 1, markers[1])]
    assert stop_log(log, 1_000)
    log.close()
    (path,) = log.directory.glob("*.txnindex")
    content = path.read_bytes()
    path.write_bytes(
        {
            "cut": content[:-1],
            "version": b"\0\1" + content[2:],
            "foreign": content[:18] + bytes(8) + content[26:],
            "unordered": content[34:] + content[:34],
        }[damage]
    )
    log = bench.load(**CONFIG)
    assert told(log) == expected
    assert path.read_bytes() == content


def test_segments_take_their_transaction_index_with_them(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    put(log, 1)
    marker = end(log, 1)
    log.roll(1_000)
    append(log, batch(1))
    flush(log)
    log.advance_log_start_offset(marker + 1)
    log.delete_segments_below_start(1_000, log.log_end_offset)
    present(log.begin_deletions(2_000)).run()
    assert not list(log.directory.glob("*.txnindex*"))
    assert told(log) == []


def crash(bench: LogBench, log: Log) -> Log:
    """Open a log again whose flushes a power cut has all taken back, but for what they wrote."""
    log.close()
    order = RecoveryOrder(bench.directory, 0, log.log_start_offset, CONFIG["index_interval_bytes"])
    assert not recover_log(bench.disk, order, now_ms=1_000).reason
    return bench.load(log_start_offset=log.log_start_offset, now_ms=1_000, **CONFIG)


def delete_before_last_segment(log: Log) -> None:
    log.advance_log_start_offset(log.segments[-1].base_offset)
    log.delete_segments_below_start(1_000, log.log_end_offset)
    present(log.begin_deletions(2_000)).run()
    assert len(log.segments) == 1


def test_a_snapshot_from_before_what_is_left_opens_no_transaction(bench: LogBench) -> None:
    """Its end was in a segment that retention took: nobody would ever end it again."""
    log = bench.create(**CONFIG)
    put(log, 1)
    log.roll(1_000)
    end(log, 1)
    log.roll(1_000)
    append(log, batch(2))
    name = f"{log.segments[1].base_offset:020}.snapshot"
    stale = log.directory / name
    content = stale.read_bytes()
    delete_before_last_segment(log)
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.unlink()
    # A power cut takes back that it was deleted.
    stale.write_bytes(content)
    log = crash(bench, log)
    assert stable(log, log.log_end_offset) == log.log_end_offset


def test_recovery_leaves_a_snapshot_at_each_segment_it_reads(bench: LogBench) -> None:
    """Who wrote only what retention takes later is known by them alone."""
    log = bench.create(**CONFIG)
    put(log, 1, sequence=7)
    end(log, 1, commits=True)
    log.roll(1_000)
    append(log, batch(2))
    log.roll(1_000)
    append(log, batch(2))
    log = crash(bench, log)
    assert snapshot_offsets(bench.disk, bench.directory) == [*log.bases[1:], log.log_end_offset]
    delete_before_last_segment(log)
    log = crash(bench, log)
    assert log.producers.get(1) is not None


def recovered_at(bench: LogBench, high_watermark: int) -> Log:
    order = RecoveryOrder(bench.directory, 0, 0, 4_000, high_watermark=high_watermark)
    assert not recover_log(bench.disk, order, now_ms=1_000).reason
    return bench.load(now_ms=1_000, index_interval_bytes=4_000)


def test_after_a_kill_a_cut_above_the_high_watermark_reads_no_whole_segment(
    tmp_path: Path,
) -> None:
    """A killed leader comes back with records that its successor lacks, in all of its logs."""
    disk = CountingDisk()
    bench = LogBench(str(tmp_path / "t-0"), disk)
    log = bench.create(index_interval_bytes=4_000)
    count, committed = 2_000, 1_900
    put(log, 2)
    append(log, *(batch(size=200, producer=(1, 0, at)) for at in range(count)))
    end(log, 2)
    log.close()
    log = recovered_at(bench, committed)
    disk.read_bytes = 0
    log.recall_unreplicated(committed)
    assert disk.read_bytes < 100_000, "the start has the loop wait, too"
    assert stable(log, committed) == 0
    disk.read_bytes = 0
    log.truncate_to(committed + 7)
    assert disk.read_bytes < 100_000
    assert log.producers.transaction_of(2) == 0
    newest = present(log.producers.get(1)).batches
    assert [each.last_sequence for each in newest] == [committed + at for at in range(1, 6)]
    log.close()


def test_a_cut_of_what_a_few_producers_wrote_last_reads_no_whole_segment(tmp_path: Path) -> None:
    """With each failover it happens to followers that had fetched more than the next leader."""
    disk = CountingDisk()
    bench = LogBench(str(tmp_path / "t-0"), disk)
    log = bench.create(index_interval_bytes=4_000)
    for at in range(1_000):
        append(log, batch(size=200, producer=(1, 0, at)), batch(size=200, producer=(2, 3, at)))
    disk.read_bytes = 0
    log.truncate_to(1_993)
    assert disk.read_bytes < 100_000
    windows = [[each.last_sequence for each in one.batches] for one in log.producers]
    assert windows == [[995, 996], [995]]
    log.close()


def write_much(log: Log, rounds: int, *, then: int = 0) -> list[int]:
    """Transactions of a producer among batches of others, and write-outs; offsets of markers."""
    sequence, markers = 0, []
    for at in range(rounds + then):
        for _ in range(20):
            put(log, 2, sequence)
            sequence += 1
            append(log, batch(size=2_000))
        markers.append(end(log, 2, commits=at % 2 == 0))
        if at < rounds:
            log.begin_write_out()
    return markers


def test_a_cut_among_transactions_reads_a_few_mib(tmp_path: Path) -> None:
    """A follower that is ahead of the next leader: its segments are mostly hundreds of MiB."""
    disk = CountingDisk()
    bench = LogBench(str(tmp_path / "t-0"), disk)
    log = bench.create(index_interval_bytes=4_000)
    markers = write_much(log, 300)
    assert log.size > 12 << 20
    for offset in (markers[-1] + 1, markers[-1], markers[-2] - 5, markers[-20]):
        disk.read_bytes = 0
        log.truncate_to(offset)
        assert disk.read_bytes < 5 << 20
        log.refusal = None
        told = ProducerState()
        load_producers(disk, log.path, told, log.segments, offset, now_ms=1_000)
        ours, theirs = present(log.producers.get(2)), present(told.get(2))
        assert ours.batches == theirs.batches
        assert ours.transaction_first_offset == theirs.transaction_first_offset
        assert ours.coordinator_epoch == theirs.coordinator_epoch
    log.truncate_to(0)
    assert len(log.producers) == 0
    log.close()


@pytest.mark.parametrize("others", [0, 1_200])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_cut_of_all_that_is_remembered_of_a_producer_reads_some_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_transactional: bool, others: int
) -> None:
    """A busy producer has five batches in flight, and all of them may be cut off."""
    monkeypatch.setattr(write_out, "WRITE_OUT_BYTES", 1 << 20)
    disk = CountingDisk()
    log = LogBench(str(tmp_path / "t-0"), disk).create(index_interval_bytes=4_000)
    for other in range(others):
        append(log, batch(producer=(10 + other, 0, 0)))
    if is_transactional:
        put(log, 2, 0)
        end(log, 2, commits=True)
    for at in range(14_000):
        append(log, batch(size=2_000, producer=(1, 0, at)))
        log.begin_write_out()
    assert log.size > 26 << 20
    disk.read_bytes = 0
    log.truncate_to(log.log_end_offset - 7)
    spacing = (1 if is_transactional else 4) * (3 if others else 1)
    assert disk.read_bytes < (spacing + 1) << 20
    assert present(log.producers.get(1)).batches[-1].last_sequence == 13_992
    assert len(log.producers) == 1 + others + is_transactional
    log.close()


def test_a_newer_snapshot_on_disk_counts_before_one_in_memory(tmp_path: Path) -> None:
    disk = CountingDisk()
    bench = LogBench(str(tmp_path / "t-0"), disk)
    log = bench.create(index_interval_bytes=4_000)
    write_much(log, 110, then=110)
    log.roll(1_000)
    put(log, 2, 4_400)
    append(log, batch())
    disk.read_bytes = 0
    log.truncate_to(log.log_end_offset - 1)
    assert disk.read_bytes < 1 << 20
    assert log.producers.transaction_of(2) == log.bases[-1]
    log.close()


@pytest.mark.parametrize("seed", range(20))
def test_producers_after_a_cut_are_those_that_the_log_tells_of(bench: LogBench, seed: int) -> None:
    """The same next batch is taken, and the last one recognized, as after a start."""
    chance = random.Random(seed)
    log = bench.create(**CONFIG)
    sequences: dict[int, tuple[int, int]] = {}
    for _ in range(40):
        producer = chance.randrange(4)
        epoch, sequence = sequences.get(producer, (0, 0))
        if sequence and chance.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        records = chance.randrange(1, 4)
        append(log, batch(records, producer=(producer, epoch, sequence)))
        sequences[producer] = epoch, sequence + records
    for at in sorted(chance.choices(range(log.log_end_offset), k=4), reverse=True):
        log.truncate_to(at)
        told = ProducerState()
        load_producers(bench.disk, log.path, told, log.segments, log.log_end_offset, now_ms=1_000)
        assert {each.producer_id for each in log.producers} == {each.producer_id for each in told}
        for each in told:
            known = present(log.producers.get(each.producer_id))
            assert (known.epoch, known.last_timestamp) == (each.epoch, each.last_timestamp)
            assert known.batches == each.batches[-len(known.batches) :] != []


@pytest.mark.parametrize("high_watermark", [0, 1, 5, 6, 10, 11, 100])
def test_whatever_the_high_watermark_a_recovery_leaves_the_same_producers(
    bench: LogBench, high_watermark: int
) -> None:
    log = bench.create()
    append(log, *(batch(2, producer=(1, 0, 2 * at)) for at in range(5)))
    log.close()
    before = [each.last_sequence for each in present(log.producers.get(1)).batches]
    for _ in range(2):
        log = recovered_at(bench, high_watermark)
        assert [each.last_sequence for each in present(log.producers.get(1)).batches] == before
        found = snapshot_offsets(bench.disk, bench.directory)
        within = high_watermark - high_watermark % 2
        assert sorted(found) == ([within, 10] if 0 < within < 10 else [10])
        log.close()


def test_retention_takes_every_snapshot_below_what_it_leaves(bench: LogBench) -> None:
    """Also one from the end of a segment, where a recovery or a stop has left it."""
    log = bench.create(**CONFIG)
    append(log, batch(2))
    log.write_snapshot()
    append(log, batch(2))
    log.roll(1_000)
    append(log, batch(2))
    flush(log)
    assert 2 in snapshot_offsets(bench.disk, bench.directory)
    delete_before_last_segment(log)
    assert snapshot_offsets(bench.disk, bench.directory) == log.bases


def test_a_marker_that_cannot_be_read_is_not_replicated(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    broken = record_batch(
        Record(0, 1_000, b"\0", b""),
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=0,
    )
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(broken, now_ms=1_000, leader_epoch=0)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


def test_most_segments_have_no_transaction_index(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    put(log, 1)
    end(log, 1, commits=True)
    log.roll(1_000)
    flush(log)
    assert not log.has_aborted
    assert not list(log.directory.glob("*.txnindex"))


def test_a_cut_in_a_gap_forgets_the_aborts_behind_it(bench: LogBench) -> None:
    """Only the name of a new segment remembers the end then; the old one has been cut as well."""
    log = bench.create(**CONFIG | {"segment_bytes": 5_000})
    log.note_holes()
    append(log, batch(1))
    for base_offset, part in ((5, 1), (8, 2)):
        content = record_batch(
            Record(base_offset, 1_000, b"k", b"v"),
            producer_id=part,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            partition_leader_epoch=0,
        )
        log.append_as_follower(content, now_ms=1_000, leader_epoch=0)
    end(log, 1)
    assert told(log) == [(1, 5, 9)]
    log.truncate_to(7)
    assert (log.log_end_offset, len(log.segments)) == (7, 2)
    assert told(log) == []
    assert log.producers.transaction_of(1) == 5
