"""Compaction of a log with transactions: what was aborted supersedes nothing, and goes."""

from pathlib import Path
from typing import Any

import pytest
from compaction import compact, read_records
from log_batches import LogBench, flush, record_batch
from present import present

from fairlead_broker.log.compaction.cleaning_plan import plan_cleaning
from fairlead_broker.log.compaction.cleaning_state import LogCleaner, log_facts
from fairlead_broker.log.compaction.log_cleaning import CleanedGroup, CleaningReport, LogCleaning
from fairlead_broker.log.log import Log
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_snapshot import encode_snapshot
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_broker.log.segment_swap import SegmentSwap
from fairlead_wire.records import Record

CONFIG: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 700,
    "index_interval_bytes": 200,
    "min_cleanable_dirty_ratio": 0.0,
    "file_delete_delay_ms": 0,
}
SMALL_MAP = 24 * 16


class Writer:
    """Producers of one log; each goes on where it was."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}
        self.epoch = 0

    def put(self, producer: int, key: bytes, value: bytes = b"v" * 60) -> int:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        guard = self.log.producers.begin_verification(
            producer, self.epoch, sequence, supports_epoch_bump=False
        )
        batch = record_batch(
            Record(0, 1_000, key, value),
            producer_id=producer,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return self.log.append_as_leader(
            batch, leader_epoch=0, now_ms=1_000, guard=guard
        ).first_offset

    def end(self, producer: int, *, commits: bool) -> int:
        marker = EndMarker(producer, 0, 0, commits, 1)
        return self.log.append_end_marker(marker, leader_epoch=0, now_ms=1_000).first_offset


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(str(tmp_path / "t-0"))


def records(log: Log) -> dict[int, bytes | None]:
    return {record.offset: record.key for record in read_records(log)}


def test_an_aborted_value_supersedes_no_committed_one(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    writer = Writer(log)
    committed = [writer.put(1, key) for key in (b"a", b"b", b"c")]
    writer.end(1, commits=True)
    aborted = [writer.put(2, key) for key in (b"a", b"b", b"c")]
    log.roll(1_000)
    # The marker lies behind all that is compacted.
    writer.end(2, commits=False)
    assert set(aborted) <= set(records(log))
    flush(log)
    compact(log, 1_000)
    found = records(log)
    assert [found.get(offset) for offset in committed] == [b"a", b"b", b"c"]
    assert not set(aborted) & set(found)


def half_cleanable(bench: LogBench) -> tuple[Log, int, int]:
    """One segment of many keys, and behind those that a small map holds an aborted record."""
    log = bench.create(**CONFIG | {"segment_bytes": 10_000})
    writer = Writer(log)
    writer.put(1, b"key 0")
    for number in range(20):
        writer.put(1, b"key %d" % number)
    aborted = writer.put(2, b"key 0")
    writer.end(1, commits=True)
    marker = writer.end(2, commits=False)
    writer.put(3, b"gone")
    writer.end(3, commits=False)
    writer.put(1, b"key 0")
    writer.end(1, commits=True)
    log.roll(1_000)
    flush(log)
    return log, aborted, marker


def told(log: Log) -> list[tuple[int, int]]:
    found = log.aborted_transactions(0, log.log_end_offset)
    return [(each.first_offset, each.last_offset) for each in found]


def test_readers_of_what_is_not_clean_yet_are_told_all_the_same(bench: LogBench) -> None:
    log, aborted, marker = half_cleanable(bench)
    before = told(log)
    report = present(compact(log, 1_000, dedupe_buffer_bytes=SMALL_MAP))
    assert report.end_offset <= aborted
    assert report.counts.records_removed == 1
    assert aborted in records(log)
    assert told(log) == before
    assert (aborted, marker) in before
    log.close()
    log = bench.load(**CONFIG)
    assert told(log) == before
    # With the records the entries go.
    compact(log, 1_000)
    assert aborted not in records(log)
    assert told(log) == []


def started_again(log: Log, bench: LogBench, *, is_recovered: bool) -> Log:
    """A start finishes the swap; after a kill it recovers first, and scans nothing that is old."""
    if is_recovered:
        interval = CONFIG["index_interval_bytes"]
        order = RecoveryOrder(bench.directory, log.recovery_point, 0, interval, has_page_cache=True)
        assert not recover_log(bench.disk, order, now_ms=1_000).reason
    log = bench.load(**CONFIG)
    assert not list(log.directory.glob("*.swap"))
    return log


@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_swap_that_a_start_finishes_hides_what_was_aborted(
    bench: LogBench, is_recovered: bool
) -> None:
    """The index of the new segment is lost with its working name; it is derived again."""
    log, aborted, _ = half_cleanable(bench)
    before = told(log)
    plan = present(
        plan_cleaning(
            log_facts(log, log.log_end_offset, high_watermark=log.log_end_offset), log.config, 1_000
        )
    )
    order = LogCleaner(log, plan).order(1_000, dedupe_buffer_bytes=SMALL_MAP)
    groups: list[CleanedGroup] = []
    LogCleaning(log.disk, order, on_group=groups.append).run()
    SegmentSwap(log, groups[0]).begin().run()
    assert list(log.directory.glob("*.txnindex.swap"))
    for segment in log.segments:
        segment.close()
    log = started_again(log, bench, is_recovered=is_recovered)
    assert aborted in records(log)
    assert told(log) == before


@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_power_cut_that_undoes_one_name_of_a_swap_hides_what_was_aborted(
    bench: LogBench, is_recovered: bool
) -> None:
    """Only that of the index of aborts: nothing else misses it, as the other indexes are there."""
    log, aborted, _ = half_cleanable(bench)
    before = told(log)
    compact(log, 1_000, dedupe_buffer_bytes=SMALL_MAP)
    assert told(log) == before
    log.close()
    (index,) = log.directory.glob("*.txnindex")
    index.rename(f"{index}.swap")
    log = started_again(log, bench, is_recovered=is_recovered)
    assert aborted in records(log)
    assert told(log) == before


def markers(log: Log) -> list[int]:
    return [
        header.base_offset
        for segment in log.segments
        for _, header in segment.headers()
        if header.is_control
    ]


def compact_all(log: Log, now_ms: int) -> CleaningReport | None:
    log.roll(now_ms)
    flush(log)
    return compact(log, now_ms)


def test_a_marker_goes_in_the_cleaning_behind_its_horizon(bench: LogBench) -> None:
    log = bench.create(**CONFIG | {"delete_retention_ms": 5_000})
    writer = Writer(log)
    writer.put(1, b"a")
    writer.put(2, b"a")
    first = [writer.end(1, commits=True), writer.end(2, commits=False)]
    writer.put(1, b"a")
    second = writer.end(1, commits=True)
    report = present(compact_all(log, 1_000))
    assert markers(log) == [*first, second]
    assert log.last_horizon_ms == report.counts.last_horizon_ms == 6_000
    # Nothing is written meanwhile: the horizon alone makes the log due.
    assert compact(log, 5_999) is None
    assert compact(log, 6_000) is not None
    assert markers(log) == [second]
    assert log.last_horizon_ms > 10**15
    assert compact(log, 100_000) is None


def test_of_a_producer_without_a_remembered_batch_the_newest_marker_is_kept(
    bench: LogBench,
) -> None:
    """A marker in a newer epoch than its transaction, as from transaction version 2 on."""
    log = bench.create(**CONFIG | {"delete_retention_ms": 0})
    newest: list[int] = []
    for now_ms in (1_000, 2_000, 3_000):
        writer = Writer(log)
        writer.epoch = present(log.producers.get(1)).epoch if newest else 0
        for _ in range(10):
            writer.put(1, b"a")
            writer.sequences.clear()
            writer.epoch += 1
            marker = EndMarker(1, writer.epoch, 0, True, 2)
            newest.append(log.append_end_marker(marker, leader_epoch=0, now_ms=1_000).first_offset)
        log.append_as_leader(record_batch(Record(0, 1, b"a", b"v")), leader_epoch=0, now_ms=1_000)
        compact_all(log, now_ms)
        left = markers(log)
        assert left[-1] == newest[-1]
    assert set(left) - set(newest[-10:]) <= {log.bases[1] - 1}
    log.close()
    log = bench.load(**CONFIG)
    assert present(log.producers.get(1)).epoch == writer.epoch == 30


def end_without_trace(writer: Writer) -> int:
    """Commit the transaction of producer 1, and compact its marker away; return its offset."""
    marker = writer.end(1, commits=True)
    writer.put(2, b"a")
    writer.end(2, commits=True)
    for now_ms in (1_000, 2_000):
        compact_all(writer.log, now_ms)
    assert marker not in markers(writer.log)
    return marker


def test_no_snapshot_opens_a_transaction_whose_marker_is_gone(bench: LogBench) -> None:
    """The newest snapshot may be damaged by a crash; those before it know the transaction open."""
    log = bench.create(**CONFIG | {"delete_retention_ms": 0})
    writer = Writer(log)
    writer.put(1, b"a")
    log.roll(1_000)
    marker = end_without_trace(writer)
    for path in log.directory.glob("*.snapshot"):
        if int(path.stem) > marker:
            path.unlink()
    for segment in log.segments:
        segment.close()
    log = bench.load(**CONFIG)
    assert log.producers.first_unstable_offset is None


def test_no_snapshot_in_memory_opens_a_transaction_whose_marker_is_gone(bench: LogBench) -> None:
    """After an unclean election a log may be cut below what is left of its newest snapshots."""
    log = bench.create(**CONFIG | {"delete_retention_ms": 0})
    writer = Writer(log)
    writer.put(1, b"a")
    log.recent_producers.note(log.log_end_offset, encode_snapshot(log.producers))
    log.roll(1_000)
    end_without_trace(writer)
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log.truncate_to(log.log_end_offset - 1)
    assert log.producers.transaction_of(1) is None
