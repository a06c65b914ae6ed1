"""Background work against real logs: flushes, retention, deletion, checkpoints, failing disks."""

import asyncio
import errno
import json
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.files.file_names import FAILED_FLUSH
from fairlead_broker.measures.broker_metrics import BrokerMetrics
from fairlead_broker.replication.follower_state import FetchedPartition, TruncateTo
from fairlead_broker.tasks.background import Background
from fairlead_broker.tasks.checkpoints import CheckpointWriter
from fairlead_broker.tasks.disk_check import DiskCheck
from fairlead_broker.tasks.flusher import EPOCH_FILES_A_ROUND
from fairlead_broker.tasks.housekeeping import Housekeeping
from fairlead_broker.tasks.metadata_recorder import MetadataRecorder
from fairlead_broker.tasks.periodic import SLEEP_MS_MAX, Interval, run_periodically
from fairlead_model.metadata_seen import MetadataSeen
from fairlead_wire.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000
DEADLINE_S = 60.0


def with_background(stage: Any, story: Callable[[Background], Awaitable[None]]) -> None:
    """Run a story while all background work of the stage's broker goes on."""

    async def act() -> None:
        with ThreadPoolExecutor(2) as executor:
            background = Background(stage.broker, executor, b"secret of the cluster")
            background.start()
            try:
                await story(background)
            finally:
                await background.stop()

    stage.run(act())


def in_executor(stage: Any, story: Callable[[ThreadPoolExecutor], Awaitable[None]]) -> None:
    async def act() -> None:
        with ThreadPoolExecutor(1) as executor:
            await story(executor)

    stage.run(act())


def test_flush_messages_flushes_and_lets_the_high_watermark_go_on(stage: Any) -> None:
    stage.topic("t", configs={"flush.messages": "1"})
    stage.append("t", b"a")
    partition = stage.partition("t")
    assert partition.high_watermark == 0

    async def story(_: Background) -> None:
        await until(lambda: partition.high_watermark == 1)

    with_background(stage, story)
    assert stage.broker.metrics.flushes == 1


def test_flush_ms_flushes_when_its_time_has_come(stage: Any) -> None:
    stage.topic("t", configs={"flush.ms": "1000"})
    stage.append("t", b"a")
    log = stage.partition("t").log
    log.flush_state.last_flush_ms = stage.clock.now_ms()

    async def story(_: Background) -> None:
        await asyncio.sleep(0.3)
        assert log.recovery_point == 0
        stage.clock.advance(1000)
        await until(lambda: log.recovery_point == 1)

    with_background(stage, story)


def test_flush_ms_flushes_though_the_clock_was_set_back(stage: Any) -> None:
    stage.topic("t", configs={"flush.ms": "1000"})
    stage.append("t", b"a")
    log = stage.partition("t").log
    log.flush_state.last_flush_ms = stage.clock.now_ms() + 3_600_000

    async def story(_: Background) -> None:
        await until(lambda: log.recovery_point == 1)

    with_background(stage, story)


def test_a_topic_that_was_deleted_since_it_was_noted_is_flushed_no_more(stage: Any) -> None:
    stage.topic("t", configs={"flush.ms": "1000"})
    stage.append("t", b"a")
    partition = stage.partition("t")
    stage.delete("t")

    async def story(background: Background) -> None:
        background.flusher.note([partition])
        await until(lambda: not background.flusher._dirty)

    with_background(stage, story)
    assert not partition.log.is_offline
    assert stage.broker.replicas.failed == {}


def test_without_such_settings_nothing_is_flushed_until_the_stop(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a")
    log = stage.partition("t").log

    async def story(background: Background) -> None:
        await asyncio.sleep(0.3)
        assert log.recovery_point == 0
        await background.flusher.flush_all()
        assert log.recovery_point == 1

    with_background(stage, story)


def test_a_stop_counts_by_what_the_controller_said_of_its_sessions(stage: Any) -> None:
    stage.controller.longest_stop_ms = 700
    wake_check = stage.broker.wake_check

    async def act() -> None:
        watch = asyncio.create_task(wake_check.run())
        await asyncio.sleep(0)
        stage.clock.advance(700)
        assert not wake_check.must_hold()
        stage.clock.advance(701)
        assert wake_check.must_hold()
        watch.cancel()
        wake_check.stop()
        await asyncio.gather(watch, return_exceptions=True)

    stage.run(act())


def test_a_new_leaders_epoch_file_follows_without_an_append(stage: Any) -> None:
    stage.topic("t")
    path = stage.directory / "t-0" / "leader-epoch-checkpoint"
    assert not path.exists()

    async def story(_: Background) -> None:
        await until(path.exists)

    with_background(stage, story)
    assert path.read_text().split() == ["0", "1", "0", "0"]


def test_an_epoch_file_that_cannot_be_made_durable_takes_its_replica_offline(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.topic("t", partitions=2)
    disk = stage.log_directory.disk
    fsync, bad = disk.fsync, stage.directory / "t-0" / "leader-epoch-checkpoint"

    def failing(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink() == bad:
            raise OSError(errno.EIO, "Input/output error")
        fsync(fd)

    monkeypatch.setattr(type(disk), "fsync", staticmethod(failing))

    async def story(_: Background) -> None:
        await until(lambda: stage.partition("t", 0).log.is_offline)
        await until(lambda: ("t", 0) in stage.broker.replicas.failed)

    with_background(stage, story)
    assert stage.append("t", b"a", index=1) == 0
    assert stage.broker.metrics.flush_failures == 1
    assert stage.broker.metrics.task_failures == 0


def test_first_records_of_many_partitions_wait_for_no_epoch_file(stage: Any) -> None:
    count = 2 * EPOCH_FILES_A_ROUND
    stage.topic("t", partitions=count)
    for index in range(count):
        stage.append("t", b"a", index=index)
    logs = [stage.partition("t", index).log for index in range(count)]

    def dirty_count() -> int:
        return sum(log.epochs.is_dirty for log in logs)

    async def story(_: Background) -> None:
        before = count
        async with asyncio.timeout(DEADLINE_S):
            while before:
                await asyncio.sleep(0)
                left = dirty_count()
                assert before - left <= 1, "more than one file in a turn of the loop"
                before = left

    assert dirty_count() == count
    with_background(stage, story)
    assert (stage.directory / f"t-{count - 1}" / "leader-epoch-checkpoint").exists()


def test_a_disk_that_takes_no_epoch_file_takes_the_log_offline(stage: Any) -> None:
    stage.topic("t")
    log = stage.partition("t").log
    log.deferred = RefusedFiles()

    async def story(_: Background) -> None:
        await until(lambda: log.is_offline)

    with_background(stage, story)
    assert log.is_offline


def test_a_failed_fsync_takes_only_its_log_offline(stage: Any) -> None:
    stage.topic("bad", configs={"flush.messages": "1"})
    stage.topic("good")
    stage.append("bad", b"a")
    log = stage.partition("bad").log
    log.disk = FailingDisk(log.disk)

    async def story(_: Background) -> None:
        await until(lambda: log.is_offline)

    with_background(stage, story)
    assert stage.broker.metrics.flush_failures == 1
    assert not stage.partition("good").log.is_offline
    assert stage.partition("bad").high_watermark == 0


def test_a_log_whose_names_cannot_be_synced_goes_offline(stage: Any) -> None:
    """The next fsync would succeed, and a flush count records whose segment has no name."""
    stage.topic("bad")
    stage.topic("good")
    stage.append("bad", b"a")
    log, directory = stage.partition("bad").log, stage.log_directory
    directory.deferred._disk = UnsyncedNames(log.path)

    async def story(background: Background) -> None:
        await until(lambda: ("bad", 0) in stage.broker.replicas.failed)
        await background._disk_check.finished()

    with_background(stage, story)
    assert log.is_offline
    assert not stage.partition("good").log.is_offline
    assert (log.directory / FAILED_FLUSH).read_text() == "0\n", "the next start reads the device"
    assert stage.broker.metrics.task_failures == 0


def test_a_truncation_that_the_disk_does_not_take_is_reported(stage: Any) -> None:
    """Nobody appends to that log any more, nor fetches for it, who would find out."""
    stage.neighbour(2)
    stage.topic("t", replicas=(1, 2))
    stage.append("t", b"a", b"b")
    stage.change("t", leader=2)
    partition = stage.partition("t")
    log = partition.log

    async def story(background: Background) -> None:
        asked = partition.next_fetch()
        parted = FetchedPartition(asked, diverging_epoch=0, diverging_end_offset=1)
        assert partition.take(parted, now_ms=0) == TruncateTo(1)
        log.disk = FailingDisk(log.disk)
        background._checkpoints.write_soon()
        await until(lambda: log.is_offline)
        await until(lambda: ("t", 0) in stage.broker.replicas.failed, deadline_s=10)

    with_background(stage, story)
    assert partition.follower is None


def test_a_disk_that_fails_a_reader_is_reported(stage: Any) -> None:
    """Nobody may be producing to that leader, who would find out."""
    stage.topic("t")
    stage.append("t", b"a")
    partition = stage.partition("t")

    async def story(_: Background) -> None:
        partition.log.forget_recent()
        partition.log.disk = partition.log.active._disk = FailingDisk(partition.log.disk)
        with pytest.raises(KafkaError) as refused:
            partition.read(0, 1000, isolation_level=0, minimum_one_batch=True)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: ("t", 0) in stage.broker.replicas.failed, deadline_s=10)

    with_background(stage, story)
    assert not partition.is_leader


def test_a_log_of_which_a_file_cannot_be_sent_is_offline(stage: Any) -> None:
    for name in ("t", "u"):
        stage.topic(name)
        stage.append(name, b"a")
    failing, sound = stage.partition("t"), stage.partition("u")

    async def story(_: Background) -> None:
        error = OSError(errno.EIO, "input/output error")
        stage.broker.on_unreadable(failing.log.active.file.path, error)
        await until(lambda: ("t", 0) in stage.broker.replicas.failed, deadline_s=10)

    with_background(stage, story)
    assert failing.log.is_offline
    assert not failing.is_leader
    assert sound.is_leader


def test_a_disk_that_takes_no_write_takes_all_logs_offline(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.topic("a")
    stage.topic("b")
    failed = OSError(errno.EROFS, "read-only file system")
    monkeypatch.setattr(stage.log_directory, "probe", lambda: failed)
    stage.partition("a").log.go_offline(failed)

    async def story(executor: ThreadPoolExecutor) -> None:
        check = DiskCheck(stage.broker, executor)
        check.on_offline(stage.partition("a"))
        await check.finished()

    in_executor(stage, story)
    assert stage.partition("b").log.is_offline


def test_a_disk_that_takes_no_checkpoint_is_looked_at(stage: Any) -> None:
    """Nobody may be producing there, who would find out; deleted records came back after a kill."""
    stage.topic("t")
    stage.append("t", b"a", b"b")
    directory, log = stage.log_directory, stage.partition("t").log
    directory.disk = directory._checkpoints._disk = ReadOnlyDisk()

    async def story(background: Background) -> None:
        stage.partition("t").delete_records(1)
        background._checkpoints.write_soon()
        await until(lambda: ("t", 0) in stage.broker.replicas.failed)

    with_background(stage, story)
    assert log.is_offline


def test_retention_deletes_old_segments_and_their_files_after_the_grace(stage: Any) -> None:
    stage.topic("t", configs={"retention.ms": "1000", "file.delete.delay.ms": "500"})
    stage.append("t", b"old")
    stage.clock.advance(2000)

    async def story(executor: ThreadPoolExecutor) -> None:
        housekeeping = Housekeeping(stage.broker, executor)
        await housekeeping.apply_retention()
        names = [path.name for path in (stage.directory / "t-0").iterdir()]
        assert [name for name in names if name.endswith(".log.retention.deleted")]
        stage.clock.advance(500)
        await housekeeping.unlink_deleted()

    in_executor(stage, story)
    assert stage.partition("t").log_start_offset == 1
    assert stage.broker.metrics.segments_deleted == 1
    assert not list((stage.directory / "t-0").glob("*.deleted"))


def test_retention_is_the_leaders_business(stage: Any) -> None:
    stage.topic("t", configs={"retention.ms": "1000"})
    stage.append("t", b"old")
    stage.change("t", leader=-1)
    stage.clock.advance(2000)

    async def story(executor: ThreadPoolExecutor) -> None:
        await Housekeeping(stage.broker, executor).apply_retention()

    in_executor(stage, story)
    assert stage.partition("t").log_start_offset == 0


def test_checkpoints_hold_the_marks_of_all_replicas(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")

    async def forget() -> None:
        stage.partition("t").delete_records(2)

    stage.run(forget())

    async def story(executor: ThreadPoolExecutor) -> None:
        await CheckpointWriter(stage.broker, executor).write()

    in_executor(stage, story)
    files = {
        name: (stage.directory / name).read_text().splitlines()[2:]
        for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint")
    }
    assert files == {
        "replication-offset-checkpoint": ["t 0 3"],
        "log-start-offset-checkpoint": ["t 0 2"],
    }


def test_a_checkpoint_while_replicas_are_taken_up_keeps_the_marks_of_the_others(stage: Any) -> None:
    """A start takes them up in slices, and the first one that is cut has a checkpoint written."""
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")
    log = stage.partition("t").log
    (directory,) = stage.broker.log_directories.live
    directory.create_log("later", 0, b"l" * 16, log.config, 0)
    directory.high_watermarks |= {("t", 0): 1, ("later", 0): 7, ("gone", 0): 5}

    async def story(executor: ThreadPoolExecutor) -> None:
        await CheckpointWriter(stage.broker, executor).write()

    in_executor(stage, story)
    marks = (stage.directory / "replication-offset-checkpoint").read_text()
    assert marks.splitlines()[2:] == ["later 0 7", "t 0 3"]
    assert stage.broker.log_directories.high_watermark("later", 0) == 7


def test_a_stop_in_the_middle_of_a_checkpoint_writes_the_last_one(stage: Any) -> None:
    """What counts as under way for ever would keep it from that: deleted records came back."""
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")

    async def story(executor: ThreadPoolExecutor) -> None:
        is_held = threading.Event()
        executor.submit(is_held.wait)
        writing = asyncio.create_task(CheckpointWriter(stage.broker, executor).write())
        await asyncio.sleep(0)
        stage.partition("t").delete_records(2)
        writing.cancel()
        is_held.set()
        await asyncio.gather(writing, return_exceptions=True)

    in_executor(stage, story)
    (directory,) = stage.broker.log_directories.live
    assert directory.flush_all(NOW_MS)
    starts = (stage.directory / "log-start-offset-checkpoint").read_text()
    assert starts.splitlines()[2:] == ["t 0 2"]


def test_how_far_the_metadata_has_come_is_written_where_the_disk_takes_it(
    stage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory, record = stage.broker.log_directories, stage.directory / "fairlead-metadata.json"
    full = OSError(errno.ENOSPC, "no space left on device")

    def refuse(_: MetadataSeen) -> None:
        raise full

    async def story(executor: ThreadPoolExecutor) -> None:
        recorder = MetadataRecorder(directory, executor)
        with monkeypatch.context() as patch:
            patch.setattr(directory, "note_metadata", refuse)
            for writes in (1, 2):
                await recorder.note(MetadataSeen(4, writes))
        assert not record.exists()
        await recorder.note(MetadataSeen(4, 3))
        assert json.loads(record.read_text()) == {"controllerEpoch": 4, "writes": 3}
        before = record.stat().st_mtime_ns
        await recorder.note(MetadataSeen(4, 3))
        assert record.stat().st_mtime_ns == before, "no news, no write"

    in_executor(stage, story)
    assert caplog.text.count("no space left on device") == 1


def test_a_round_that_fails_is_counted_and_the_next_one_runs() -> None:
    metrics = BrokerMetrics()
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        raise ValueError("this round only")

    async def act() -> None:
        task = asyncio.create_task(
            run_periodically("work", work, interval=Interval(lambda: 1), metrics=metrics)
        )
        await until(lambda: rounds >= 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(act())
    assert metrics.task_failures == rounds


def test_an_interval_that_is_shortened_ends_while_somebody_waits_for_it() -> None:
    interval_ms, rounds = SLEEP_MS_MAX, 0
    interval = Interval(lambda: interval_ms)

    async def work() -> None:
        nonlocal rounds
        rounds += 1

    async def act() -> None:
        nonlocal interval_ms
        round_of_work = run_periodically("work", work, interval=interval, metrics=BrokerMetrics())
        task = asyncio.create_task(round_of_work)
        await asyncio.sleep(0)
        interval_ms = 1
        interval.changed()
        await until(lambda: rounds >= 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(act(), 10))


class RefusedFiles:
    """Small files cannot be replaced: the disk fails."""

    def replace(self, path: str, content: bytes) -> None:
        raise OSError(errno.EIO, "input/output error", path)


class ReadOnlyDisk(RealDisk):
    """No file can be opened to be written."""

    def open_write(self, path: str, /) -> int:
        raise OSError(errno.EROFS, "read-only file system", path)


class UnsyncedNames(RealDisk):
    """The names in one directory are not made durable, once."""

    def __init__(self, path: str) -> None:
        self._path: str | None = path

    def fsync_directory(self, path: str, /) -> None:
        if path == self._path:
            self._path = None
            raise OSError(errno.EIO, "input/output error", path)
        super().fsync_directory(path)


class FailingDisk:
    """A disk that fails every read and every fsync."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def fsync(self, fd: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    def pread(self, fd: int, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "input/output error")
