"""A failing disk takes one log offline, with the right error, and nothing is made up.

A full one only keeps it from taking records: `test_full_disk.py`.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from log_batches import (
    TOPIC_ID,
    LogBench,
    all_headers,
    append,
    as_leader_sent,
    batch,
    flush,
    record_batch,
)
from present import present
from simulated_disk import PowerCut, SimulatedDisk
from simulated_logs import CONFIG, start, started_log

from fairlead_broker.log.compaction.log_cleaning import CleanedGroup
from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.log import Log
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.segment_swap import SegmentSwap
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.records import Record


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def expect_offline(log: Log, action: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as caught:
        action()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.is_offline
    with pytest.raises(KafkaError) as caught:
        append(log, batch())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_short_writes_are_completed(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    disk.short_writes = 6
    append(log, *(batch() for _ in range(4)))
    assert len(all_headers(log)) == 4


@pytest.mark.parametrize("operation", ["pwrite", "_create", "rename"])
def test_an_error_of_the_device_takes_the_log_offline(disk: SimulatedDisk, operation: str) -> None:
    _, log = started_log(disk)
    append(log, *(batch() for _ in range(5)))
    disk.fail(operation)

    def until_roll() -> None:
        for _ in range(20):
            append(log, batch())

    expect_offline(log, until_roll)


@pytest.fixture
def damaged(tmp_path: Path) -> Log:
    """A log that was stopped cleanly and opened, whose last batch has been damaged since."""
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create()
    append(log, *(batch() for _ in range(5)))
    assert stop_log(log, 0)
    log.close()
    log = bench.load()
    with Path(log.active.path).open("r+b") as file:
        file.seek(4 * len(batch()) + 16)
        file.write(b"\x09")
    return log


def append_as_follower(log: Log) -> None:
    log.append_as_follower(as_leader_sent(5), now_ms=0)


def end_transaction(log: Log) -> None:
    log.append_end_marker(EndMarker(7, 0, 0, is_commit=True, transaction_version=1), **AT)


AT = {"leader_epoch": 0, "now_ms": 0}


@pytest.mark.parametrize(
    "act",
    [
        lambda log: append(log, batch()),
        append_as_follower,
        end_transaction,
        lambda log: log.delete_expired_segments(10**15, log.log_end_offset),
    ],
)
def test_a_segment_that_cannot_be_gone_on_with_takes_the_log_offline(
    damaged: Log, act: Callable[[Log], object]
) -> None:
    """What raised something else held up all that its caller had to do for other logs."""
    expect_offline(damaged, lambda: act(damaged))


def test_other_logs_go_on(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    other = directory.create_log("u", 0, TOPIC_ID, CONFIG, 0)
    disk.fail("pwrite", errno.EDQUOT)
    expect_offline(log, lambda: append(log, batch()))
    assert isinstance(directory.probe(), OSError)
    disk.failures.clear()
    assert append(other, batch()) == [0]
    assert directory.probe() is None
    assert not directory.close(clean=True, broker_epoch=1), "one log is not known to be whole"


def test_a_failed_fsync_is_never_retried_and_the_lost_pages_are_not_believed(
    disk: SimulatedDisk,
) -> None:
    directory, log = started_log(disk)
    append(log, *(batch() for _ in range(4)))
    flush(log)
    append(log, *(batch() for _ in range(4)))
    path = log.active.path
    disk.fail_fsync_of(path)
    job = present(log.begin_flush())
    job.run()
    disk.failures.clear()
    log.complete_flush(job, 0)
    assert log.is_offline
    assert log.recovery_point == 4
    assert log.begin_flush() is None
    assert not directory.close(clean=True, broker_epoch=1)
    # The process restarts; the page cache still shows the lost pages as if all were well.
    cached = disk.after_kill()
    assert len(cached.names[path].content) == 8 * 180
    directory, report = start(cached)
    assert report.recovered["t", 0].reason
    assert len(all_headers(present(directory.log("t", 0)))) == 4


def test_what_the_kernel_could_not_write_back_is_not_believed(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    append(log, *(batch() for _ in range(4)))
    flush(log)
    append(log, *(batch() for _ in range(4)))
    disk.fail_fsync_of(log.active.path)
    disk = disk.after_kill()
    # Told once: the process before may have been killed before it could ask.
    disk.fail("sync_file_system")
    directory, report = start(disk)
    assert report.write_back_error is not None
    assert not report.is_whole
    assert len(all_headers(present(directory.log("t", 0)))) == 4
    disk.failures.clear()
    directory, report = start(disk.after_kill())
    assert report.is_whole
    assert len(all_headers(present(directory.log("t", 0)))) == 4


def test_a_second_kill_finds_nothing_to_do_where_nothing_was_appended(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    append(log, *(batch(producer=(7, 0, number)) for number in range(30)))
    disk = disk.after_kill()
    directory, _ = start(disk)
    directory.confirm_start(2)
    disk = disk.after_kill()
    directory, report = start(disk)
    assert report.recovered["t", 0].scanned_bytes == 0
    log = present(directory.log("t", 0))
    assert [h.base_offset for h in all_headers(log)] == list(range(30))
    assert present(log.producers.get(7)).batches[-1].last_sequence == 29
    directory.confirm_start(3)
    append(log, batch())
    _, report = start(disk.after_kill())
    assert report.recovered["t", 0].scanned_bytes > 0


def test_a_kill_in_the_middle_of_a_cut_leaves_no_aborted_transaction_of_what_is_gone(
    disk: SimulatedDisk,
) -> None:
    """The log is as it was when its active segment was rolled, but for that index."""
    directory, log = started_log(disk)
    append(log, batch(), batch(), batch())
    log.roll(0)
    flush(log)
    directory.write_checkpoints()
    guard = log.producers.begin_verification(1, 0, 0, supports_epoch_bump=False)
    opening = record_batch(
        Record(0, 1_000, b"k", b"v"),
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append_as_leader(opening, leader_epoch=0, now_ms=0, guard=guard)
    log.append_end_marker(EndMarker(1, 0, 0, False, 1), leader_epoch=0, now_ms=0)
    # After the records, before the index.
    disk.cut_before = disk.operations + 2
    with pytest.raises(PowerCut):
        log.truncate_to(3)
    log = present(start(disk.after_kill())[0].log("t", 0))
    assert log.log_end_offset == 3
    assert log.aborted_transactions(0, 10) == []


def test_no_flush_moves_the_recovery_point_over_an_unwritten_epoch(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    append(log, batch(), epoch=1)
    assert not disk.exists("/d/t-0/leader-epoch-checkpoint"), "nothing on the way of an append"
    disk.fail("rename")
    assert log.begin_flush() is None
    assert log.is_offline
    assert log.recovery_point == 0


def test_a_small_file_that_could_not_be_made_durable_takes_its_log_offline(
    disk: SimulatedDisk,
) -> None:
    """The next fsync of it would succeed, so a stop must not be called clean."""
    directory, log = started_log(disk)
    other = directory.create_log("other", 0, b"o" * 16, CONFIG, now_ms=0)
    present(directory.begin_sync()).run()
    append(other, batch())
    append(log, batch())
    log.assign_leader_epoch(1)
    log.maybe_write_epochs()
    disk.fail_fsync_of("/d/t-0/leader-epoch-checkpoint")
    job = present(directory.begin_sync())
    with pytest.raises(OSError, match="Input/output error"):
        job.run()
    assert directory.complete_sync(job) == [log]
    assert log.is_offline
    assert not other.is_offline
    disk.failures.clear()
    assert not directory.close(clean=True, broker_epoch=1)
    _, report = start(disk.after_kill())
    assert sorted(key for key, _ in report.recovered) == ["other", "t"]


def test_names_of_new_logs_that_could_not_be_made_durable_take_these_offline(
    disk: SimulatedDisk,
) -> None:
    directory, log = started_log(disk)
    append(log, batch())
    flush(log)
    present(directory.begin_sync()).run()
    new = directory.create_log("new", 0, b"n" * 16, CONFIG, now_ms=0)
    disk.fail("fsync_directory")
    job = present(directory.begin_sync())
    with pytest.raises(OSError, match="Input/output error"):
        job.run()
    assert directory.complete_sync(job) == [new]
    assert not log.is_offline
    disk.failures.clear()
    assert not directory.close(clean=True, broker_epoch=1)


def test_a_failed_flush_outweighs_a_clean_shutdown_marker(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    append(log, batch())
    assert directory.close(clean=True, broker_epoch=1)
    disk.names["/d/t-0/fairlead-failed-flush"] = disk.names.pop("/d/t-0/partition.metadata")
    directory, report = start(disk.after_kill())
    assert directory.start.was_clean
    assert ("t", 0) in report.recovered
    _, report = start(disk.after_kill())
    assert not report.recovered


@pytest.mark.parametrize("operation", ["open_write", "list_directory", "exists"])
def test_a_log_that_cannot_be_opened_does_not_stop_the_others(
    disk: SimulatedDisk, operation: str
) -> None:
    directory, _ = started_log(disk)
    directory.create_log("u", 0, TOPIC_ID, CONFIG, 0)
    present(directory.begin_sync()).run()
    disk = disk.after_kill()
    original = getattr(disk, operation)

    def failing(path: str) -> object:
        if path.startswith("/d/t-0"):
            raise OSError(errno.EIO, "Input/output error")
        return original(path)

    setattr(disk, operation, failing)
    directory, report = start(disk)
    assert set(report.offline) == {("t", 0)}
    assert directory.log("u", 0) is not None
    assert directory.log("t", 0) is None


def test_a_log_refuses_appends_until_a_truncation_is_durable(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    append(log, *(batch() for _ in range(20)))
    flush(log)
    job = present(directory.begin_checkpoint())
    log.truncate_to(5)
    job.run()
    directory.complete_checkpoint(job)
    assert log.refusal is not None, "that job began before the truncation"
    directory.write_checkpoints()
    assert append(log, batch()) == [5]


def test_an_error_of_one_truncated_log_lets_no_other_count_as_durable(disk: SimulatedDisk) -> None:
    directory, first = started_log(disk)
    second = directory.create_log("u", 0, TOPIC_ID, CONFIG, 0)
    for log in (first, second):
        append(log, *(batch() for _ in range(40)))
        log.truncate_to(35)
    disk.fail("unlink")
    directory.write_checkpoints()
    assert second.recovery_point == 0, "none of its files was synced"
    disk.failures.clear()
    directory.write_checkpoints()
    assert second.recovery_point == 35
    directory = start(disk.after_power_cut(Random(1)))[0]
    assert present(directory.log("u", 0)).log_end_offset == 35
    assert len(all_headers(present(directory.log("u", 0)))) == 35


def damage(disk: SimulatedDisk, log: Log, number: int) -> None:
    """Spoil the header of a batch in the active segment."""
    headers = list(log.active.headers())
    disk.names[log.active.path].content[headers[number][0] + 16] ^= 7


@pytest.mark.parametrize(
    "act", [lambda log: append(log, batch()), append_as_follower, end_transaction]
)
def test_no_room_behind_a_damaged_batch_takes_the_log_offline(
    disk: SimulatedDisk, act: Callable[[Log], object]
) -> None:
    """What was refused cannot be cut off: no partition was fetched from that leader any more."""
    log = LogBench("/x/t-0", disk).create()
    append(log, *(batch() for _ in range(5)))
    damage(disk, log, 4)
    disk.free_bytes = 0
    expect_offline(log, lambda: act(log))


def test_a_log_whose_active_segment_begins_with_damage_goes_on_after_a_restart(
    disk: SimulatedDisk,
) -> None:
    """Only the batch itself is not read. Appends failed, retention of all logs, and truncation."""
    bench = LogBench("/x/t-0", disk)
    config = {"index_interval_bytes": 200, "retention_ms": 1_000}
    log = bench.create(**config)
    append(log, *(batch(timestamp=1_000) for _ in range(40)))
    flush(log)
    damage(disk, log, 0)
    log.close()
    log = bench.load(**config)
    log.append_as_follower(as_leader_sent(40), now_ms=1_000)
    assert append(log, batch()) == [41]
    log.close()
    log = bench.load(**config)
    log.truncate_to(30)
    assert log.log_end_offset == 30
    log = bench.load(**config)
    log.delete_expired_segments(10_000, log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset == 30


def test_a_log_that_cannot_be_cut_for_damage_goes_offline(disk: SimulatedDisk) -> None:
    """It stayed half cut, and no partition was fetched from that leader any more."""
    log = LogBench("/x/t-0", disk).create()
    append(log, *(batch() for _ in range(20)))
    flush(log)
    damage(disk, log, 5)
    expect_offline(log, lambda: log.truncate_to(10))


def test_bench_on_the_simulated_disk_agrees_with_itself(disk: SimulatedDisk) -> None:
    log = LogBench("/x/t-0", disk).create(segment_bytes=500)
    append(log, *(batch() for _ in range(9)))
    flush(log)
    assert [h.base_offset for h in all_headers(log)] == list(range(9))


def test_a_deletion_of_records_needs_no_room_on_the_disk(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    append(log, *(batch() for _ in range(5)), epoch=1)
    append(log, *(batch() for _ in range(5)), epoch=2)
    flush(log)
    disk.free_bytes = 0
    log.advance_log_start_offset(7)
    assert not log.is_offline
    assert log.epochs.entries() == [(2, 7)]
    disk.free_bytes = None
    directory.write_checkpoints()
    directory, _ = start(disk.after_kill())
    again = present(directory.log("t", 0))
    assert again.log_start_offset == 7
    assert again.epochs.entries() == [(2, 7)]


def test_a_look_up_by_time_tells_what_is_wrong(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    append(log, *(batch(timestamp=1_000 + at) for at in range(25)))
    first = log.segments[0]
    disk.names[first.path].content[16] = 9
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(1_001, end_offset=log.log_end_offset)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert not log.is_offline
    disk.fail("pread")
    for look_up in (
        lambda: log.offset_for_timestamp(1_001, end_offset=log.log_end_offset),
        log.offset_of_max_timestamp,
    ):
        expect_offline(log, look_up)
        log.is_offline, log.refusal = False, None


def test_a_damaged_segment_does_not_stop_retention(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    append(log, *(batch(timestamp=1_000 + at) for at in range(25)))
    damaged = log.segments[0]
    assert directory.close(clean=True, broker_epoch=1)
    disk.names[damaged.path].content[16] = 9
    # An index that points outside the segment is made anew from batches that cannot be read.
    disk.names[damaged.offset_index.path].content[-4:] = b"\x7f" * 4
    directory, _ = start(disk.after_kill())
    log = present(directory.log("t", 0))
    directory.confirm_start(2)
    count = len(log.segments)
    assert count > 2
    log.delete_expired_segments(CONFIG.retention_ms + 5_000, log.log_end_offset)
    assert len(log.segments) == 1


def test_a_log_that_is_deleted_while_it_is_flushed_has_not_failed(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    directory, log = started_log(disk)
    append(log, batch())
    job = present(log.begin_flush())
    directory.delete_log(log, 0)
    job.run()
    log.complete_flush(job, 0)
    assert not log.is_offline
    assert not log.flush_state.failed_flush
    assert not caplog.records


def test_a_deleted_log_is_not_flushed_into_its_successor(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    log.assign_leader_epoch(3)
    append(log, batch(), epoch=3)
    log.flush_state.is_wanted = True
    directory.delete_log(log, 0)
    assert not log.flush_is_due(0)
    assert log.begin_flush() is None
    assert not log.is_offline

    successor = directory.create_log(log.topic, log.partition, b"another-topic-id", CONFIG, 0)
    successor.assign_leader_epoch(0)
    append(successor, batch())
    flush(successor)
    assert log.begin_flush() is None
    directory.close(clean=True)
    directory, _ = start(disk)
    reopened = present(directory.log("t", 0))
    assert reopened.topic_id == b"another-topic-id"
    assert [epoch for epoch, _ in reopened.epochs.entries()] == [0]


def test_a_replacement_that_cannot_begin_leaves_the_log_as_it_was(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    append(log, *(batch() for _ in range(25)))
    flush(log)
    names = set(disk.names)
    cleaned = [
        f"{log.path}/{0:020d}{suffix}.cleaned" for suffix in (".log", ".index", ".timeindex")
    ]
    for path in cleaned:
        disk.close(disk.open_write(path))
    swap = SegmentSwap(log, CleanedGroup([0], 0, 0, 0))
    disk.fail("_create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        swap.begin()
    disk.failures.clear()
    disk.unlink(cleaned[2])
    with pytest.raises(FileNotFoundError):
        swap.begin()
    assert log.swap is None
    assert set(disk.names) - names <= {cleaned[0], f"{log.path}/fairlead-compacted"}
    assert not log.is_offline
    append(log, batch())


def test_the_first_flush_makes_the_name_of_the_directory_durable(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, log = started_log(disk)
    synced: list[str] = []
    sync = disk.fsync_directory

    def noted(path: str) -> None:
        synced.append(path)
        sync(path)

    monkeypatch.setattr(disk, "fsync_directory", noted)
    for expected in ([log.path, "/d"], [log.path]):
        append(log, batch())
        flush(log)
        assert synced == expected
        synced.clear()
    directory.close(clean=False)


def test_a_log_that_cannot_begin_anew_at_its_start_is_an_error_of_the_disk(
    disk: SimulatedDisk,
) -> None:
    """Then the broker starts without it, instead of not at all."""
    bench = LogBench("/d/t-0", disk)
    append(bench.create(), batch())
    disk.fail("_create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        bench.load(log_start_offset=50)
