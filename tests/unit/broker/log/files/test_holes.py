"""Logs whose offsets have gaps, because they or their leaders were compacted."""

from pathlib import Path

import pytest
from log_batches import (
    LogBench,
    all_headers,
    append,
    as_leader_sent,
    batch,
    flush,
    read_headers,
)
from present import present
from simulated_disk import PowerCut, SimulatedDisk

from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.file_names import HOLES_MARK
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.leader_epochs import LeaderEpochs
from fairlead_broker.log.log import Log
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_broker.tools.dump import open_dump
from fairlead_broker.tools.verify import verify_partition
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.invariants import InvariantViolation


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(str(tmp_path / "t-0"))


def take(log: Log, *offsets: int, size: int = 180) -> None:
    sent = b"".join(bytes(as_leader_sent(offset, size=size)) for offset in offsets)
    log.append_as_follower(memoryview(sent), now_ms=0)


def bases(log: Log) -> list[int]:
    return [header.base_offset for header in all_headers(log)]


def test_followers_take_over_their_leaders_gaps(bench: LogBench) -> None:
    log = bench.create(segment_bytes=600)
    take(log, 3, 4, 9)
    take(log, 20, 21, 400)
    assert log.log_end_offset == 401
    assert bases(log) == [3, 4, 9, 20, 21, 400]
    # A reader is led over a gap, also one that begins a segment.
    for asked, found in ((0, 3), (5, 9), (10, 20), (22, 400), (399, 400)):
        assert read_headers(log, asked)[0].base_offset == found
    assert not list(verify_partition(bench.directory))
    with pytest.raises(InvariantViolation):
        take(log, 399)


def test_only_logs_with_gaps_are_marked(bench: LogBench) -> None:
    log = bench.create()
    take(log, 0, 1)
    mark = bench.directory + "/" + HOLES_MARK
    assert not bench.disk.exists(mark)
    take(log, 5)
    assert bench.disk.exists(mark)
    assert list(open_dump(mark).rows) == [("offsets", "may have gaps")]


def test_recovery_keeps_gaps_although_it_knows_no_settings(tmp_path: Path) -> None:
    def start() -> tuple[LogDirectory, LoadReport]:
        directory = LogDirectory.open(str(tmp_path), node_id=0, cluster_id="c")
        report = directory.load(0, config_for=lambda topic, partition: LogConfig())
        directory.confirm_start(1)
        return directory, report

    directory, _ = start()
    log = directory.create_log("t", 0, bytes(16), LogConfig(segment_bytes=600), 0)
    take(log, 0, 4, 9, 20, 21, 400)
    directory.close(clean=False)
    directory, report = start()
    assert report.recovered["t", 0].reason == ""
    assert bases(present(directory.log("t", 0))) == [0, 4, 9, 20, 21, 400]
    directory.close(clean=True)
    directory, report = start()
    assert not report.recovered
    assert present(directory.log("t", 0)).has_holes
    directory.close(clean=False)


def test_recovery_cuts_an_unmarked_log_at_a_gap(bench: LogBench) -> None:
    """I8."""
    log = bench.create()
    take(log, 0, 1, 5)
    log.close()
    bench.disk.unlink(bench.directory + "/" + HOLES_MARK)
    report = recover_log(bench.disk, RecoveryOrder(bench.directory, 0, 0, 4096), now_ms=0)
    assert report.is_unclean
    assert report.log_end_offset == 2


@pytest.mark.parametrize(("cut", "left"), [(12, [3, 4, 9]), (20, [3, 4, 9]), (7, [3, 4])])
def test_a_log_cut_in_a_gap_keeps_its_end(bench: LogBench, cut: int, left: list[int]) -> None:
    log = bench.create(segment_bytes=600)
    take(log, 3, 4, 9)
    take(log, 20, 21)
    flush(log)
    log.truncate_to(cut)
    assert log.log_end_offset == cut
    assert log.refusal == AWAITS_CHECKPOINT
    log.close()
    log = bench.load()
    # Offsets below were given out: a leader that forgot them would give them out again.
    assert log.log_end_offset == cut
    assert bases(log) == left
    take(log, cut + 2)
    assert bases(log) == [*left, cut + 2]


def test_a_gap_that_no_segment_spans_begins_a_new_one(bench: LogBench) -> None:
    log = bench.create()
    take(log, 0)
    for offset in (2**31 + 5, 2**33, 2**34):
        take(log, offset, offset + 1)
    assert log.bases == [0, 2**31 + 5, 2**33, 2**34]
    assert log.log_end_offset == 2**34 + 2
    log.close()
    log = bench.load()
    assert bases(log)[-2:] == [2**34, 2**34 + 1]
    assert log.log_end_offset == 2**34 + 2


def test_an_empty_follower_begins_behind_a_gap(bench: LogBench) -> None:
    log = bench.create()
    take(log, 2**40)
    assert log.log_start_offset == 0
    assert log.log_end_offset == 2**40 + 1
    log.close()
    assert bases(bench.load()) == [2**40]


def test_a_truncation_that_is_killed_leaves_no_hole_that_compaction_did_not_make() -> None:
    """Where gaps are allowed, recovery cannot tell: so the newest segments go first."""
    for cut in range(1, 30):
        disk = SimulatedDisk()
        log = LogBench("/d/t-0", disk).create(segment_bytes=600, file_delete_delay_ms=0)
        append(log, *(batch() for _ in range(20)))
        flush(log)
        log.note_holes()
        disk.cut_after = disk.operations + cut
        try:
            log.truncate_to(4)
        except PowerCut:
            pass
        else:
            return
        disk.cut_after = -1
        order = RecoveryOrder("/d/t-0", 20, 0, 4_096, has_holes=True)
        recover_log(disk, order, now_ms=0)
        headers = all_headers(LogBench("/d/t-0", disk).load())
        assert [header.base_offset for header in headers] == list(range(len(headers)))
        assert len(headers) >= 4
    pytest.fail("the truncation never ended")


@pytest.mark.parametrize(("has_page_cache", "end"), [(False, 3), (True, 8)])
def test_a_gap_that_a_power_cut_made_is_not_taken_for_compaction(
    has_page_cache: bool, end: int
) -> None:
    """The end of a segment was lost, the name of the next one was not: what is gone is gone."""
    disk = SimulatedDisk()
    log = LogBench("/d/t-0", disk).create(segment_bytes=1_000)
    append(log, *(batch() for _ in range(3)))
    flush(log)
    log.note_holes()
    append(log, *(batch() for _ in range(2)))
    log.roll(0)
    log.close()
    path = "/d/t-0/" + "0" * 20 + ".log"
    if not has_page_cache:
        disk.truncate(disk.open_write(path), 3 * 180)
    else:
        # A follower that rolled and then went on behind a gap: a kill loses none of it.
        log = LogBench("/d/t-0", disk).load()
        take(log, 7)
        log.close()
    order = RecoveryOrder("/d/t-0", 3, 0, 4_096, has_holes=True, has_page_cache=has_page_cache)
    assert recover_log(disk, order, now_ms=0).log_end_offset == end


def take_epochs(log: Log, *batches: tuple[int, int]) -> None:
    sent = b"".join(bytes(as_leader_sent(offset, epoch=epoch)) for epoch, offset in batches)
    log.append_as_follower(memoryview(sent), now_ms=0)


def test_an_epoch_whose_first_records_are_compacted_away_begins_with_the_gap(
    bench: LogBench,
) -> None:
    """Begun with its first record, it would let a follower keep what it had at offset 3."""
    log = bench.create()
    take_epochs(log, (0, 0), (0, 2), (1, 9), (1, 10))
    assert log.epochs.entries() == [(0, 0), (1, 3)]
    take_epochs(log, (4, 20))
    assert log.epochs.entries() == [(0, 0), (1, 3), (4, 11)]


@pytest.mark.parametrize(("known", "found"), [((1, 5), (1, 5)), ((1, 10), (1, 3)), (None, (1, 3))])
def test_recovery_does_not_let_an_epoch_begin_behind_a_gap(
    tmp_path: Path, known: tuple[int, int] | None, found: tuple[int, int]
) -> None:
    """What is remembered counts where it can be true."""

    def start() -> LogDirectory:
        directory = LogDirectory.open(str(tmp_path), node_id=0, cluster_id="c")
        directory.load(0, config_for=lambda topic, partition: LogConfig())
        directory.confirm_start(1)
        return directory

    directory = start()
    log = directory.create_log("t", 0, bytes(16), LogConfig(segment_bytes=600), 0)
    take_epochs(log, (0, 0), (0, 2), (1, 9), (1, 10))
    log.epochs = LeaderEpochs([(0, 0)] + ([] if known is None else [known]))
    log.write_epochs()
    directory.close(clean=False)
    directory = start()
    assert present(directory.log("t", 0)).epochs.entries() == [(0, 0), found]
    directory.close(clean=True)
