"""What compaction leaves of producers, when the end of the log is cut off after it."""

from pathlib import Path
from typing import Any

import pytest
from compaction import compact
from log_batches import LogBench, all_headers, append, flush, record_batch
from present import present

from fairlead_broker.disk import Disk
from fairlead_broker.log.compaction.producer_traces import producer_traces
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.log import Log
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_state import ProducedBatch, ProducerEntry
from fairlead_wire.records import Record

CONFIG: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 10_000,
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": 0,
    "file_delete_delay_ms": 0,
}
PRODUCER = 7


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(str(tmp_path / "t-0"))


def keyed(key: bytes, **options: int) -> memoryview:
    return record_batch(Record(0, 1_000, key, b"v"), **options)


def sent(sequence: int, key: bytes = b"a", *, epoch: int = 0) -> memoryview:
    return keyed(key, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)


def seal(log: Log) -> int:
    """All that is there is superseded and in sealed segments; return where it ends."""
    append(log, keyed(b"a"), keyed(b"b"))
    log.roll(1_000)
    return log.log_end_offset


def cut_off(log: Log, offset: int) -> None:
    """As a crash and a change of leader leave it: no snapshot tells of the log's new end."""
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log.truncate_to(offset)


def last_sequence(log: Log) -> int:
    return present(log.producers.get(PRODUCER)).batches[-1].last_sequence


def test_the_newest_batch_that_is_committed_stays_beside_one_that_is_not(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    append(log, sent(0), sent(1))
    end = seal(log)
    append(log, sent(2))
    flush(log)
    compact(log, 1_000, high_watermark=end)
    assert [h.base_sequence for h in all_headers(log) if h.producer_id == PRODUCER] == [1, 2]
    cut_off(log, end)
    assert last_sequence(log) == 1


def test_what_is_committed_makes_room(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    append(log, sent(0), sent(1))
    seal(log)
    append(log, sent(2))
    flush(log)
    compact(log, 1_000)
    assert [h.base_sequence for h in all_headers(log) if h.producer_id == PRODUCER] == [2]


def test_all_batches_stay_while_as_many_as_are_remembered_may_go(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    append(log, sent(0), sent(1))
    end = seal(log)
    append(log, *(sent(sequence, b"b") for sequence in range(2, 7)))
    flush(log)
    compact(log, 1_000, high_watermark=end)
    cut_off(log, end)
    assert last_sequence(log) == 1


def test_a_producer_that_came_back_with_a_newer_epoch_may_lose_it_again(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    append(log, sent(0), sent(1))
    end = seal(log)
    append(log, sent(0, epoch=1))
    flush(log)
    compact(log, 1_000, high_watermark=end)
    cut_off(log, end)
    assert last_sequence(log) == 1
    assert present(log.producers.get(PRODUCER)).epoch == 0


def end_transaction(log: Log, epoch: int) -> int:
    """A transaction of one record that ends in `epoch`, as of transaction version 2."""
    guard = log.producers.begin_verification(PRODUCER, epoch - 1, 0, supports_epoch_bump=True)
    batch = record_batch(
        Record(0, 1_000, b"a", b"v"),
        producer_id=PRODUCER,
        producer_epoch=epoch - 1,
        base_sequence=0,
        is_transactional=True,
    )
    log.append_as_leader(batch, leader_epoch=0, now_ms=1_000, guard=guard)
    marker = EndMarker(PRODUCER, epoch, 0, True, 2)
    return log.append_end_marker(marker, leader_epoch=0, now_ms=1_000).first_offset


@pytest.mark.parametrize("is_ended", [False, True])
def test_the_marker_of_an_older_epoch_stays_while_the_next_transaction_may_go(
    bench: LogBench, is_ended: bool
) -> None:
    log = bench.create(**CONFIG)
    for epoch in (1, 2):
        end_transaction(log, epoch)
    end = seal(log)
    flush(log)
    # Their horizons are noted, and are over in the next cleaning.
    compact(log, 1_000, high_watermark=end)
    if is_ended:
        end_transaction(log, 3)
    else:
        append(log, sent(0, epoch=2))
    flush(log)
    compact(log, 2_000, high_watermark=end, last_horizon_ms=0)
    cut_off(log, end)
    assert present(log.producers.get(PRODUCER)).epoch == 2


def entry(producer_id: int, *last_offsets: int) -> ProducerEntry:
    made = ProducerEntry(producer_id, 3)
    made.batches = [ProducedBatch(0, 0, offset, offset, 0) for offset in last_offsets]
    return made


def test_each_producer_leaves_one_kind_of_trace() -> None:
    producers = [entry(1, 5, 9, 10), entry(2, 10, 11), entry(3), entry(4, 9)]
    traces = producer_traces(producers, 10, has_uncommitted_markers=False)
    assert traces == ([(1, 9), (4, 9)], [(3, 3)], [2])
    traces = producer_traces(producers, 10, has_uncommitted_markers=True)
    assert traces == ([(1, 9), (4, 9)], [], [2, 3])


def test_a_cut_while_a_thread_removes_snapshots_of_replaced_segments_finds_others(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unclean election: a snapshot may be gone when it is read, and the log has it all."""
    log = bench.create(**CONFIG)
    for sequence in range(8):
        append(log, sent(sequence))
        log.roll(1_000)
    append(log, sent(8))
    flush(log)
    compact(log, 1_000)
    assert log.bases == [0, 8]
    job = present(log.begin_deletions(1_000))
    assert [path for path in job.paths if path.endswith(".snapshot")]

    def read_after_the_thread(disk: Disk, path: str) -> bytes:
        job.run()
        return read_small_file(disk, path)

    monkeypatch.setattr(
        "fairlead_broker.log.producer_loading.read_small_file", read_after_the_thread
    )
    log.truncate_to(3)
    assert not log.is_offline
    assert log.log_end_offset == 3
    assert log.producers.get(PRODUCER) is None, "all that is remembered of it was cut off"
