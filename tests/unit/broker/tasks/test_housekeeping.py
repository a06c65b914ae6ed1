"""What ages while a disk refuses: nothing is forgotten, and no log holds up the others."""

import asyncio
import errno
import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from fairlead_broker.disk import RealDisk
from fairlead_broker.limits import SEGMENTS_DELETED_A_TURN
from fairlead_broker.log.files.deletions import LONGEST_RETRY_MS
from fairlead_broker.log.files.file_names import RETENTION_SUFFIX
from fairlead_broker.log.producers.producer_state import ProducedBatch
from fairlead_broker.tasks import housekeeping
from fairlead_broker.tasks.housekeeping import Housekeeping

SMALL_SEGMENTS = {"segment.bytes": "1024", "file.delete.delay.ms": "0"}


class StubbornDisk(RealDisk):
    """Lets go of nothing whose path has `kept` in it, and renames nothing with `fixed`."""

    def __init__(self) -> None:
        self.kept = "\0"
        self.fixed = "\0"

    def unlink(self, path: str, /) -> None:
        if self.kept in path:
            raise OSError(errno.EIO, "Input/output error", path)
        super().unlink(path)

    def rename(self, source: str, target: str, /) -> None:
        if self.fixed in source:
            raise OSError(errno.EROFS, "Read-only file system", source)
        super().rename(source, target)


@pytest.fixture
def disk(stage: Any) -> StubbornDisk:
    directory, stubborn = stage.log_directory, StubbornDisk()
    directory.disk = directory._loader._disk = stubborn
    return stubborn


def fill(stage: Any, name: str, segments: int) -> None:
    """So many segments, the last of them active."""
    for _ in range(segments):
        stage.append(name, b"x" * 900)


def in_executor(stage: Any, story: Any) -> None:
    async def act() -> None:
        with ThreadPoolExecutor(1) as executor:
            await story(Housekeeping(stage.broker, executor))

    stage.run(act())


def test_files_that_cannot_be_unlinked_are_tried_again(
    stage: Any, disk: StubbornDisk, caplog: pytest.LogCaptureFixture
) -> None:
    stage.topic("t", configs=SMALL_SEGMENTS)
    fill(stage, "t", 5)
    partition = stage.partition("t")
    log = partition.log
    log.advance_log_start_offset(partition.high_watermark - 1)
    deleted = log.delete_segments_below_start(stage.clock.now_ms(), partition.high_watermark)
    assert deleted == 4
    disk.kept = f"{0:020d}.log"

    async def story(housekeeping: Housekeeping) -> None:
        metrics, waits = stage.broker.metrics, []
        await housekeeping.unlink_deleted()
        kept = [path.name for path in log.directory.glob("*.deleted")]
        assert kept == [disk.kept + RETENTION_SUFFIX]
        assert metrics.undeleted == 1
        for _ in range(10):
            waits.append(log.deletions._pending[-1].waited_ms)
            stage.clock.advance(waits[-1] - 1)
            caplog.clear()
            await housekeeping.unlink_deleted()
            assert not caplog.records
            stage.clock.advance(1)
            await housekeeping.unlink_deleted()
            assert "1 deleted files or directories cannot be removed" in caplog.text
        assert waits[:3] == [30_000, 60_000, 120_000]
        assert waits[-1] == LONGEST_RETRY_MS
        disk.kept = "\0"
        stage.clock.advance(LONGEST_RETRY_MS)
        await housekeeping.unlink_deleted()
        assert not list(log.directory.glob("*.deleted"))
        assert metrics.undeleted == 0
        assert metrics.task_failures == 0

    in_executor(stage, story)


def test_a_directory_that_cannot_be_removed_is_tried_again(
    stage: Any, disk: StubbornDisk, caplog: pytest.LogCaptureFixture
) -> None:
    stage.topic("t", configs={"file.delete.delay.ms": "0"})
    stage.append("t", b"x")
    directory, log = stage.log_directory, stage.partition("t").log
    directory.delete_log(log, stage.clock.now_ms())
    disk.kept = ".index"

    async def story(housekeeping: Housekeeping) -> None:
        root = log.directory.parent
        await housekeeping.unlink_deleted()
        assert len(list(root.glob("*-delete"))) == 1
        assert stage.broker.metrics.undeleted == 1
        disk.kept = "\0"
        await housekeeping.unlink_deleted()
        assert len(list(root.glob("*-delete"))) == 1
        stage.clock.advance(30_000)
        await housekeeping.unlink_deleted()
        assert not list(root.glob("*-delete"))
        assert stage.broker.metrics.undeleted == 0

    in_executor(stage, story)


def test_a_log_that_retention_cannot_touch_goes_offline_alone_and_is_reported(
    stage: Any, disk: StubbornDisk, caplog: pytest.LogCaptureFixture
) -> None:
    configs = SMALL_SEGMENTS | {"retention.bytes": "1"}
    for name in ("a", "b"):
        stage.topic(name, configs=configs)
        fill(stage, name, 5)
    disk.fixed = "/a-0/"
    moved: list[Any] = []

    async def story(housekeeping: Housekeeping) -> None:
        stage.broker.on_moved = moved.extend
        await housekeeping.apply_retention()

    failing, sound = stage.partition("a"), stage.partition("b")
    in_executor(stage, story)
    assert failing.log.is_offline
    assert ("a", 0) in stage.broker.replicas.failed
    assert failing in moved
    assert sound.log_start_offset == 4


def test_a_long_log_is_deleted_in_turns_of_the_loop(stage: Any) -> None:
    stage.topic("t", configs=SMALL_SEGMENTS | {"retention.bytes": "1"})
    count = 2 * SEGMENTS_DELETED_A_TURN + 5
    fill(stage, "t", count + 1)
    log = stage.partition("t").log
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append(len(log.segments))
            await asyncio.sleep(0)

    async def story(housekeeping: Housekeeping) -> None:
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        await housekeeping.apply_retention()
        watching.cancel()

    in_executor(stage, story)
    assert len(log.segments) == 1
    assert stage.broker.metrics.segments_deleted == count
    steps = [before - after for before, after in pairwise(seen)]
    assert max(steps) == SEGMENTS_DELETED_A_TURN


def test_expired_segments_go_to_the_last_one_however_many(stage: Any) -> None:
    stage.topic("t", configs=SMALL_SEGMENTS | {"retention.ms": "1000"})
    fill(stage, "t", SEGMENTS_DELETED_A_TURN + 20)
    partition = stage.partition("t")
    stage.clock.advance(10_000_000_000)

    async def story(housekeeping: Housekeeping) -> None:
        await housekeeping.apply_retention()

    in_executor(stage, story)
    assert partition.log_start_offset == partition.log_end_offset
    assert len(partition.log.segments) == 1


@pytest.fixture(autouse=True)
def errors_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def test_logs_with_too_many_producers_forget_the_oldest_of_the_largest(
    stage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client names as many producer ids as it likes, in each partition it may write to."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(housekeeping, "PRODUCERS_MAX", 20)
    stage.topic("flooded")
    stage.topic("quiet")
    flooded, quiet = (stage.partition(name).log.producers for name in ("flooded", "quiet"))
    now_ms = stage.clock.now_ms()
    for number in range(17):
        flooded.record(number, 0, ProducedBatch(0, 0, number, number, now_ms), now_ms)
    for number in range(3):
        quiet.record(100 + number, 0, ProducedBatch(0, 0, number, number, now_ms), now_ms)

    async def story(keeping: Housekeeping) -> None:
        await keeping.bound_producers()
        assert (len(flooded), len(quiet)) == (17, 3), "as many as there may be"
        flooded.record_transactional(0, 0, ProducedBatch(1, 1, 17, 17, now_ms), now_ms)
        flooded.record(17, 0, ProducedBatch(0, 0, 18, 18, now_ms), now_ms)
        await keeping.bound_producers()
        assert len(quiet) == 3
        assert [each.producer_id for each in flooded] == [*range(4, 18), 0]
        assert "a log keeps 14" in caplog.text

    in_executor(stage, story)


def test_producers_that_only_asked_for_a_transaction_are_bounded_too(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition keeps a guard for them as long as it remembers producers: a day."""
    monkeypatch.setattr(housekeeping, "PRODUCERS_MAX", 20)
    stage.topic("flooded")
    stage.topic("quiet")
    flooded, quiet = (stage.partition(name).log.producers for name in ("flooded", "quiet"))
    for number in range(18):
        flooded.begin_verification(number, 0, 0, supports_epoch_bump=True)
    for number in range(3):
        quiet.begin_verification(number, 0, 0, supports_epoch_bump=True)

    async def story(keeping: Housekeeping) -> None:
        await keeping.bound_producers()
        assert (flooded.verification_count, quiet.verification_count) == (15, 3)

    in_executor(stage, story)
