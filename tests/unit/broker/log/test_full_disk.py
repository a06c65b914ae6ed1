"""A full disk keeps a log from taking records; nothing else changes, and it ends by itself."""

import errno
import random
from collections.abc import Callable

import pytest
from log_batches import all_headers, append, as_leader_sent, batch, flush, record_batch
from present import present
from simulated_disk import PowerCut, SimulatedDisk
from simulated_logs import start, started_log

from fairlead_broker.log import full_disk
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.log import Log
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.records import Record

ROOMS = [0, 7, 100, 180 * 4, 180 * 12, 180 * 12 + 100]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def refused(action: Callable[[], object]) -> bool:
    """Whether there was no room for it."""
    try:
        action()
    except KafkaError as error:
        assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
        return True
    return False


def fill(log: Log) -> None:
    """Append until there is no room."""
    assert any(refused(lambda: append(log, batch())) for _ in range(50))
    assert log.lacks_room
    assert not log.is_offline


def resume(directory: LogDirectory, log: Log) -> None:
    assert full_disk.take_records_again(log)
    assert log.refusal is not None, "only once the cut is durable"
    directory.write_checkpoints()
    assert log.refusal is None


def offsets(log: Log) -> list[int]:
    return [header.base_offset for header in all_headers(log)]


def body(log: Log, offset: int) -> bytes:
    """The first bytes of a batch behind its header."""
    piece = present(
        log.read(offset, 1_000, end_offset=log.log_end_offset, minimum_one_batch=True).records
    )
    return log.disk.pread(piece.file.read_fd, 8, piece.position + 61)


@pytest.mark.parametrize("room", ROOMS)
def test_what_was_refused_leaves_nothing_and_the_log_goes_on_after(
    disk: SimulatedDisk, room: int
) -> None:
    directory, log = started_log(disk)
    append(log, *(batch() for _ in range(5)))
    disk.free_bytes = room
    disk.short_writes = 1
    fill(log)
    end = log.log_end_offset
    assert offsets(log) == list(range(end)), "it can be read"
    assert len(disk.names[log.active.path].content) == log.active.size
    assert refused(lambda: append(log, batch(size=70))), "also what would fit, till there is room"
    disk.free_bytes = None
    resume(directory, log)
    assert append(log, batch(size=1_500), *(batch() for _ in range(20)))[0] == end
    assert offsets(log) == list(range(end + 21))
    flush(log)
    assert directory.close(clean=True, broker_epoch=1)
    directory, report = start(disk.after_kill())
    assert not report.recovered, "a clean stop is believed"
    assert offsets(present(directory.log("t", 0))) == list(range(end + 21))


@pytest.mark.parametrize("room", ROOMS)
def test_a_stop_or_a_kill_of_a_full_broker_loses_nothing(disk: SimulatedDisk, room: int) -> None:
    for is_clean in (True, False):
        disk = SimulatedDisk()
        directory, log = started_log(disk)
        append(log, *(batch() for _ in range(5)))
        disk.free_bytes = room
        fill(log)
        end = log.log_end_offset
        if is_clean:
            try:
                directory.close(clean=True, broker_epoch=1)
            except OSError as error:
                assert error.errno == errno.ENOSPC
        disk.free_bytes = None
        directory, _ = start(disk.after_kill())
        assert offsets(present(directory.log("t", 0))) == list(range(end))


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_after_a_full_disk_brings_nothing_back_that_was_refused(
    disk: SimulatedDisk, seed: int
) -> None:
    rng = random.Random(seed)
    directory, log = started_log(disk)
    append(log, *(batch() for _ in range(5)))
    flush(log)
    # The record is written, and its index entry finds no room.
    disk.free_bytes = 180 * rng.randrange(12) + rng.randrange(8)
    assert any(refused(lambda: append(log, batch(fill=b"r"))) for _ in range(50))
    kept = log.log_end_offset
    disk.free_bytes = None
    resume(directory, log)
    append(log, *(batch(fill=b"n") for _ in range(10)))
    if rng.random() < 0.5:
        flush(log)
        kept = log.log_end_offset
    directory, _ = start(disk.after_power_cut(rng, rng.choice((512, 4096))))
    log = present(directory.log("t", 0))
    found = offsets(log)
    assert found == list(range(len(found)))
    assert len(found) >= min(kept, 5)
    refused_at = [at for at in found if at >= kept and body(log, at).startswith(b"r")]
    assert not refused_at


@pytest.mark.parametrize("operation", ["_create", "rename", "pwrite"])
def test_a_roll_that_finds_no_room_leaves_no_segment(disk: SimulatedDisk, operation: str) -> None:
    directory, log = started_log(disk)
    append(log, *(batch(producer=(7, 0, number)) for number in range(10)))
    disk.fail(operation, errno.ENOSPC)
    assert any(refused(lambda: append(log, batch())) for _ in range(3))
    assert not log.is_offline
    disk.failures.clear()
    assert [name for name in disk.names if name.endswith(".log")] == [log.segments[0].path]
    resume(directory, log)
    # It need not be rolled now: a small one fits into the segment that was sealed.
    append(log, batch(size=70), *(batch() for _ in range(12)))
    directory.close(clean=False)
    directory, _ = start(disk.after_kill())
    assert offsets(present(directory.log("t", 0))) == list(range(len(offsets(log))))


@pytest.mark.parametrize("room", range(0, 1_500, 50))
def test_a_follower_keeps_whole_batches_and_fetches_the_rest_once_there_is_room(
    disk: SimulatedDisk, room: int
) -> None:
    directory, log = started_log(disk)
    disk.free_bytes = room
    sent = b"".join(bytes(as_leader_sent(offset)) for offset in range(30))

    def take() -> None:
        position = 180 * log.log_end_offset
        log.append_as_follower(memoryview(sent)[position:], now_ms=0, leader_epoch=0)

    assert refused(take)
    end = log.log_end_offset
    assert offsets(log) == list(range(end))
    assert len(disk.names[log.active.path].content) == log.active.size
    disk.free_bytes = None
    resume(directory, log)
    take()
    assert offsets(log) == list(range(30))


def test_an_abort_whose_index_has_no_room_is_not_in_the_log(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    guard = log.producers.begin_verification(7, 0, 0, supports_epoch_bump=False)
    content = record_batch(
        Record(0, 1_000, b"k", b"v"),
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append_as_leader(content, leader_epoch=0, now_ms=1_000, guard=guard)
    marker = EndMarker(7, 0, 0, is_commit=False, transaction_version=1)

    def end() -> None:
        log.append_end_marker(marker, leader_epoch=0, now_ms=1_000)

    disk.free_bytes = 78 + 10
    assert refused(end), "there is room for the marker, and not for its entry"
    assert offsets(log) == [0]
    assert log.producers.transaction_of(7) == 0
    assert disk.free_bytes == 78 + 10
    disk.free_bytes = None
    resume(directory, log)
    end()
    assert [each.last_offset for each in log.aborted_transactions(0, 2)] == [1]
    assert log.producers.transaction_of(7) is None


def test_epochs_are_written_once_there_is_room(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    append(log, batch(), epoch=1)
    disk.free_bytes = 0
    with pytest.raises(KafkaError):
        log.maybe_write_epochs()
    assert log.lacks_room
    assert not full_disk.take_records_again(log), "there was no room after all"
    assert log.begin_flush() is None, "no recovery point above an epoch that is not written"
    disk.free_bytes = None
    resume(directory, log)
    assert b"1 0" in bytes(disk.names["/d/t-0/leader-epoch-checkpoint"].content)


def test_a_truncation_needs_no_room(disk: SimulatedDisk) -> None:
    directory, log = started_log(disk)
    append(log, *(batch() for _ in range(5)), epoch=1)
    append(log, *(batch() for _ in range(5)), epoch=2)
    log.write_epochs()
    disk.free_bytes = 0
    log.truncate_to(5)
    assert not log.is_offline
    assert log.log_end_offset == 5
    disk.free_bytes = None
    if log.lacks_room:
        full_disk.take_records_again(log)
    directory.write_checkpoints()
    assert append(log, batch(), epoch=3) == [5]


def test_retention_makes_room_on_a_full_disk(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    append(log, *(batch(timestamp=1_000) for _ in range(40)))
    disk.free_bytes = 0
    fill(log)
    log.reconfigure(LogConfig(segment_bytes=2_000, retention_ms=1, file_delete_delay_ms=0))
    count = len(log.segments) - 1
    assert log.delete_expired_segments(1_000_000, log.log_end_offset) == count
    assert not log.is_offline
    present(log.begin_deletions(2_000_000)).run()
    assert [name for name in disk.names if name.endswith(".log")] == [log.active.path]


class FullFolder(SimulatedDisk):
    """A directory whose block has no room for a longer name, until something goes."""

    def __init__(self) -> None:
        super().__init__()
        self.free_names = 0

    def rename(self, source: str, target: str) -> None:
        if self.free_names <= 0 and target.endswith(".deleted"):
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_names -= target.endswith(".deleted")
        super().rename(source, target)


def forgotten_segments(free_names: int) -> tuple[FullFolder, Log]:
    """A log whose segments but the last may go, in such a directory; its disk is returned, too."""
    disk = FullFolder()
    directory, log = started_log(disk)
    append(log, *(batch() for _ in range(40)))
    flush(log)
    directory.write_checkpoints()
    present(directory.begin_sync()).run()
    log.advance_log_start_offset(log.bases[-1])
    disk.free_names = free_names
    return disk, log


@pytest.mark.parametrize("free_names", [0, 1, 3, 4])
def test_retention_needs_no_room_for_names(free_names: int) -> None:
    """They are longer than those before. Nothing else may ever make room."""
    disk, log = forgotten_segments(free_names)
    assert log.delete_segments_below_start(0, 40) == 3
    assert log.refusal is None
    present(log.begin_deletions(log.config.file_delete_delay_ms)).run()
    assert [name for name in disk.names if ".log" in name] == [log.active.path]


@pytest.mark.parametrize("seed", range(15))
def test_a_power_cut_leaves_no_gap_where_there_is_no_room_for_names(seed: int) -> None:
    disk, log = forgotten_segments(3)
    first = disk.operations + 1
    log.delete_segments_below_start(0, 40)
    for at in range(first, disk.operations + 1):
        cut, log = forgotten_segments(3)
        cut.cut_after = at
        with pytest.raises(PowerCut):
            log.delete_segments_below_start(0, 40)
        log = present(start(cut.after_power_cut(random.Random(seed)))[0].log("t", 0))
        assert log.log_end_offset == 40


@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT])
def test_another_error_takes_the_log_offline(disk: SimulatedDisk, number: int) -> None:
    _, log = started_log(disk)
    disk.fail("pwrite", number)
    assert refused(lambda: append(log, batch()))
    assert log.is_offline


def test_a_log_that_failed_or_was_closed_while_its_disk_was_full_stays_so(
    disk: SimulatedDisk,
) -> None:
    _, log = started_log(disk)
    disk.free_bytes = 0
    assert refused(lambda: append(log, batch()))
    log.go_offline(OSError(errno.EIO, "input/output error"))
    assert not log.lacks_room, "nobody has it take records again"
    assert refused(lambda: append(log, batch()))
    disk = SimulatedDisk()
    _, log = started_log(disk)
    disk.free_bytes = 0
    assert refused(lambda: append(log, batch()))
    log.close()
    assert not log.lacks_room
    assert refused(lambda: append(log, batch()))


def test_a_cut_that_fails_takes_the_log_offline(disk: SimulatedDisk) -> None:
    _, log = started_log(disk)
    disk.fail("pwrite", errno.ENOSPC)
    disk.fail("truncate", errno.EIO)
    assert refused(lambda: append(log, batch()))
    assert log.is_offline
