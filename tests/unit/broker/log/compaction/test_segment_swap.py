"""Compacted segments take the place of others, whatever happens to the log meanwhile."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compaction import compact, read_records
from log_batches import LogBench, flush, record_batch
from present import present

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.compaction.cleaning_plan import plan_cleaning
from fairlead_broker.log.compaction.cleaning_state import LogCleaner, log_facts
from fairlead_broker.log.compaction.log_cleaning import (
    CleanedGroup,
    CleaningReport,
    LogCleaning,
    UncleanableLogError,
)
from fairlead_broker.log.log import Log
from fairlead_broker.log.segment_swap import SegmentSwap
from fairlead_wire.records import Record

CONFIG: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 700,
    "index_interval_bytes": 200,
    "min_cleanable_dirty_ratio": 0.0,
    "file_delete_delay_ms": 100,
}


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(str(tmp_path / "t-0"))


def put(log: Log, *keys: bytes, value: bytes | None = b"v" * 50) -> None:
    for key in keys:
        batch = record_batch(Record(0, 1_000, key, value))
        log.append_as_leader(batch, leader_epoch=0, now_ms=1_000)


def filled(bench: LogBench, **config: Any) -> Log:
    """Nine segments of one key, so that eight of them become one."""
    log = bench.create(**CONFIG | config)
    put(log, *([b"a"] * 40))
    log.roll(1_000)
    put(log, b"b")
    flush(log)
    return log


def cleaned(log: Log) -> tuple[LogCleaner, list[CleanedGroup], CleaningReport]:
    """A cleaning whose files are ready, and nothing is in place yet."""
    plan = present(
        plan_cleaning(
            log_facts(log, log.log_end_offset, high_watermark=log.log_end_offset), log.config, 1_000
        )
    )
    cleaner = LogCleaner(log, plan)
    groups: list[CleanedGroup] = []
    order = cleaner.order(1_000, dedupe_buffer_bytes=1 << 20)
    report = LogCleaning(log.disk, order, on_group=groups.append).run()
    return cleaner, groups, report


def names(log: Log, *suffixes: str) -> list[str]:
    return [path.name for path in log.directory.iterdir() if path.name.endswith(suffixes)]


def keys(log: Log) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.key) for record in read_records(log)]


def test_many_segments_become_one_and_readers_notice_nothing(bench: LogBench) -> None:
    log = filled(bench, segment_bytes=5_000)
    log.reconfigure(log.config)
    in_flight = present(
        log.read(0, 300, end_offset=log.log_end_offset, minimum_one_batch=True).records
    )
    before = log.disk.pread(in_flight.file.read_fd, in_flight.length, in_flight.position)
    assert present(compact(log, 1_000)).counts.records_removed == 39
    assert log.bases == [0, 40]
    assert keys(log) == [(39, b"a"), (40, b"b")]
    after = log.disk.pread(in_flight.file.read_fd, in_flight.length, in_flight.position)
    assert after == before
    job = present(log.begin_deletions(1_100))
    job.run()
    assert not names(log, ".deleted", ".swap", ".cleaned")
    # Nothing is left to do.
    assert compact(log, 1_000) is None


def test_a_replacement_that_has_not_begun_to_serve_is_given_up(bench: LogBench) -> None:
    log = filled(bench)
    cleaner, groups, _ = cleaned(log)
    swap = SegmentSwap(log, groups[0])
    swap.begin().run()
    assert names(log, ".log.swap")
    log.truncate_to(30)
    assert not names(log, ".swap")
    assert swap.replace(1_000) is None
    swap.finish()
    assert not cleaner.is_valid
    assert not cleaner.may_replace(groups[0])
    assert log.log_end_offset == 30
    assert len(keys(log)) == 30


def test_a_replacement_that_serves_is_finished_before_the_log_is_cut(bench: LogBench) -> None:
    log = filled(bench)
    _, groups, _ = cleaned(log)
    swap = SegmentSwap(log, groups[0])
    swap.begin().run()
    present(swap.replace(1_000)).run()
    assert log.segments[0].path.endswith(".log.swap")
    count = len(keys(log))
    log.truncate_to(38)
    swap.finish()
    assert not names(log, ".swap")
    assert log.log_end_offset == 38
    assert 0 < len(keys(log)) <= count
    assert log.first_dirty_offset <= 38


def test_closing_in_the_middle_leaves_what_a_start_finishes(bench: LogBench) -> None:
    log = filled(bench)
    _, groups, _ = cleaned(log)
    swap = SegmentSwap(log, groups[0])
    swap.begin().run()
    present(swap.replace(1_000)).run()
    log.close()
    assert not names(log, ".swap")
    log = bench.load(**CONFIG)
    assert keys(log)[-2:] == [(39, b"a"), (40, b"b")]
    assert not names(log, ".cleaned", ".deleted")


def test_retention_while_a_log_is_cleaned_makes_the_cleaning_void(bench: LogBench) -> None:
    log = filled(bench)
    cleaner, groups, report = cleaned(log)
    log.advance_log_start_offset(20)
    assert log.delete_segments_below_start(1_000, log.log_end_offset) > 0
    assert not cleaner.may_replace(groups[0])
    cleaner.complete(report)
    assert log.first_dirty_offset <= 20
    # The next cleaning begins where the log does now.
    compact(log, 1_000)
    assert keys(log)[-2:] == [(39, b"a"), (40, b"b")]


def test_a_map_that_is_too_small_cleans_piece_by_piece(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    for _ in range(3):
        put(log, *[b"key %d" % number for number in range(30)])
    log.roll(1_000)
    flush(log)
    rounds = 0
    while (report := compact(log, 1_000, dedupe_buffer_bytes=24 * 16)) is not None:
        assert report.keys <= 12
        rounds += 1
        assert rounds < 50
    assert rounds > 5
    assert len(keys(log)) == 30


def test_one_batch_with_more_keys_than_fit_is_told(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    batch = record_batch(*[Record(at, 1_000, b"key %d" % at, b"v") for at in range(30)])
    log.append_as_leader(batch, leader_epoch=0, now_ms=1_000)
    log.roll(1_000)
    flush(log)
    with pytest.raises(UncleanableLogError, match=r"raise log\.cleaner\.dedupe\.buffer\.size"):
        compact(log, 1_000, dedupe_buffer_bytes=24 * 16)


@pytest.mark.parametrize("position", [5, 30, 100])
def test_damage_is_named_by_file_and_position(bench: LogBench, position: int) -> None:
    log = filled(bench)
    with (log.directory / f"{0:020d}.log").open("r+b") as file:
        file.seek(position)
        file.write(b"\xee\xee")
    with pytest.raises(UncleanableLogError, match=r"0{20}\.log position 0: "):
        compact(log, 1_000)
    assert len(log.segments) > 5


def test_an_empty_log_and_a_log_of_one_segment_are_never_due(bench: LogBench) -> None:
    log = bench.create(**CONFIG)
    assert compact(log, 1_000) is None
    put(log, b"a", b"a")
    flush(log)
    assert compact(log, 1_000) is None


def test_only_tombstones(bench: LogBench) -> None:
    log = bench.create(**CONFIG | {"delete_retention_ms": 500})
    put(log, *([b"a", b"b"] * 20), value=None)
    log.roll(1_000)
    flush(log)
    report = present(compact(log, 1_000))
    assert keys(log) == [(38, b"a"), (39, b"b")]
    assert report.counts.last_horizon_ms == 1_500
    assert compact(log, 1_499, last_horizon_ms=1_500) is None
    compact(log, 1_500, last_horizon_ms=1_500)
    assert keys(log) == []
    assert log.log_end_offset == 40


class CrowdedDisk(RealDisk):
    """Has no room for some names; for those of new segments once something was removed."""

    def __init__(self, refused: str, *, spared: int = 0) -> None:
        self.refused = refused
        self.spared = spared
        self.is_crowded = True

    def rename(self, source: str, target: str, /) -> None:
        if self.refused in (source[-len(self.refused) :], target[-len(self.refused) :]):
            self.spared -= 1
            if self.spared < 0 and self.is_crowded:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        super().rename(source, target)

    def unlink(self, path: str, /) -> None:
        super().unlink(path)
        if self.refused == ".swap" and path.endswith(".deleted"):
            self.is_crowded = False


@pytest.mark.parametrize(
    ("refused", "spared"),
    [*((".deleted", at) for at in (0, 1, 2, 3, 10, 20)), *((".swap", at) for at in range(3))],
)
def test_a_full_disk_has_room_once_the_old_segments_are_gone(
    tmp_path: Path, refused: str, spared: int
) -> None:
    disk = CrowdedDisk(refused)
    bench = LogBench(str(tmp_path / "t-0"), disk)
    log = filled(bench)
    log.reconfigure(replace(log.config, segment_bytes=5_000))
    assert len(log.segments) > 8
    in_flight = present(
        log.read(0, 300, end_offset=log.log_end_offset, minimum_one_batch=True).records
    )
    before = log.disk.pread(in_flight.file.read_fd, in_flight.length, in_flight.position)
    _, groups, _ = cleaned(log)
    swap = SegmentSwap(log, groups[0])
    disk.is_crowded = False
    swap.begin().run()
    disk.is_crowded, disk.spared = True, spared
    present(swap.replace(1_000)).run()
    swap.finish()
    assert log.swap is None
    assert keys(log) == [(39, b"a"), (40, b"b")]
    assert log.disk.pread(in_flight.file.read_fd, in_flight.length, in_flight.position) == before
    job = log.begin_deletions(1_100)
    if job is not None:
        job.run()
        assert not job.refused
    assert not names(log, ".swap", ".cleaned", ".deleted")
    log.close()
    assert keys(bench.load(**CONFIG)) == [(39, b"a"), (40, b"b")]
