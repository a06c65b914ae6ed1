"""AlterReplicaLogDirs of a broker with several log directories, and what disturbs a move."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_batches import batch
from waiting import until

from fairlead_broker.log import full_disk
from fairlead_broker.log.moving.move_plan import Step
from fairlead_broker.log.moving.replica_move import ReplicaMove
from fairlead_broker.log.producers.producer_snapshot import decode_snapshot
from fairlead_broker.tasks import room_watch
from fairlead_broker.tasks.replica_mover import ReplicaMover
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {"log.dirs": "one,two", "log.segment.bytes": "1048576"}
pytestmark = pytest.mark.parametrize("stage", [SETTINGS], indirect=True)
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


def ask(stage: Any, path: Path | str, topic: str = "a", index: int = 0) -> int:
    answer = stage.ask(
        AlterReplicaLogDirsRequest(
            [AlterReplicaLogDir(str(path), [AlterReplicaLogDirTopic(topic, [index])])]
        ),
        2,
    )
    ((result,),) = ([*each.partitions] for each in answer.results)
    return int(result.error_code)


def carry_out(
    stage: Any,
    before: Callable[[ReplicaMove, Step], None] = lambda *_: None,
    after: Callable[[Step], None] = lambda _: None,
) -> list[Path]:
    """Let the mover do all that there is; paths of disks that were suspected.

    `before` is done before each step begins, `after` once its job is over.
    """
    suspected: list[Path] = []
    begin, complete = ReplicaMove.begin, ReplicaMove.complete

    def completed(move: ReplicaMove, step: Step, *rest: Any) -> None:
        complete(move, step, *rest)
        after(step)

    def watched(move: ReplicaMove, step: Step) -> Any:
        before(move, step)
        return begin(move, step)

    async def act() -> None:
        mover = ReplicaMover(stage.broker, on_disk_error=lambda path: suspected.append(Path(path)))
        running = asyncio.create_task(mover.run())
        await until(lambda: not list(stage.broker.log_directories.moves))
        mover.stop()
        await running

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicaMove, "begin", watched)
        patch.setattr(ReplicaMove, "complete", completed)
        stage.run(act())
    return suspected


def described(stage: Any) -> dict[str, list[tuple[str, bool, int, int]]]:
    answer = stage.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        Path(each.log_dir).name: [
            (topic.name, one.is_future_key, one.offset_lag, one.partition_size)
            for topic in each.topics
            for one in topic.partitions
        ]
        for each in answer.results
    }


def folders(path: Path) -> list[str]:
    return sorted(each.name.partition(".")[0] for each in path.iterdir() if each.is_dir())


def fill(stage: Any, count: int = 30, topic: str = "a") -> None:
    stage.topic(topic)
    for number in range(count):
        stage.append(topic, b"%d" % number * 1000)


def test_a_replica_moves_while_it_is_written(stage: Any, tmp_path: Path) -> None:
    fill(stage)
    log = stage.partition("a").log
    before = described(stage)["one"]
    assert ask(stage, tmp_path / "two") == 0
    now = described(stage)
    assert now["one"] == before
    assert now["two"] == [("a", True, 30, 0)]
    assert ask(stage, tmp_path / "two") == 0, "the same once more"

    def write(move: ReplicaMove, step: Step) -> None:
        log.append_as_leader(batch(size=300), leader_epoch=log.last_leader_epoch, now_ms=1)

    assert carry_out(stage, write) == []
    assert stage.partition("a").log is log
    assert log.path == str(tmp_path / "two" / "a-0")
    stage.append("a", b"goes on")
    now = described(stage)
    assert now["one"] == []
    assert now["two"] == [("a", False, 0, log.size)]
    assert (tmp_path / "two/a-0/00000000000000000000.log").stat().st_size == log.size
    assert [name for name in folders(tmp_path / "one") if "a-0" in name] == ["a-0"]
    assert not (tmp_path / "one/a-0").exists()
    assert stage.partition("a").log_end_offset > 31


def test_what_moved_is_there_after_a_stop(stage: Any, tmp_path: Path) -> None:
    fill(stage)
    ask(stage, tmp_path / "two")
    carry_out(stage)
    stage.append("a", b"more")
    directories = stage.broker.log_directories
    assert directories.close(clean=True, broker_epoch=3)
    stage.broker = stage.run(stage._start())
    found = stage.broker.log_directories.log("a", 0)
    assert (found.path, found.log_end_offset) == (str(tmp_path / "two/a-0"), 31)
    assert stage.broker.log_directories.start.unclean == []


def test_records_without_timestamps_do_not_become_younger(stage: Any, tmp_path: Path) -> None:
    stage.topic("a", configs={"retention.ms": "60000"})
    log = stage.partition("a").log
    for _ in range(2):
        log.append_as_leader(batch(timestamp=-1), leader_epoch=log.last_leader_epoch, now_ms=1)
        log.roll(1)
    made_ms = 1_000_000
    log.disk.set_modified_ms(log.segments[0].path, made_ms)
    assert ask(stage, tmp_path / "two") == 0
    carry_out(stage)
    assert log.directory.parent == tmp_path / "two"
    assert log.delete_expired_segments(made_ms + 60_001, 2) == 1


def test_the_checkpoints_of_both_disks_follow(stage: Any, tmp_path: Path) -> None:
    """At the switch both speak of the log, and in the end that of the new disk alone."""
    fill(stage)
    directories = stage.broker.log_directories.directories
    for directory in directories:
        directory.write_checkpoints({("a", 0): 30} if directory is directories[0] else {})
    ask(stage, tmp_path / "two")
    at_name: list[list[str]] = []

    def look(move: ReplicaMove, step: Step) -> None:
        if step is Step.NAME:
            for directory in directories:
                directory.write_checkpoints()
            at_name.extend(marks())

    def marks() -> list[list[str]]:
        names = [tmp_path / each / "replication-offset-checkpoint" for each in ("one", "two")]
        return [name.read_text().splitlines()[2:] for name in names]

    carry_out(stage, look)
    assert at_name == [["a 0 30"], ["a 0 30"]]
    for directory in directories:
        directory.write_checkpoints()
    assert marks() == [[], ["a 0 30"]]


def test_refusals_are_those_of_kafka(stage: Any, tmp_path: Path) -> None:
    fill(stage, 1)
    assert ask(stage, tmp_path / "three") == ErrorCode.LOG_DIR_NOT_FOUND
    assert ask(stage, tmp_path / "two", "x" * 215) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ask(stage, tmp_path / "one") == 0
    assert list(stage.broker.log_directories.moves) == []
    stage.partition("a").log.go_offline(DISK_FULL)

    async def notice() -> None:
        stage.broker.on_partition_offline(stage.partition("a"))

    stage.run(notice())
    assert ask(stage, tmp_path / "two") == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_offline_directory_takes_nothing(stage: Any, tmp_path: Path) -> None:
    fill(stage, 1)
    directories = stage.broker.log_directories
    ask(stage, tmp_path / "two")
    directories.fail(directories.directories[1], DISK_FULL)
    carry_out(stage)
    assert stage.broker.metrics.failed_moves == 1
    assert ask(stage, tmp_path / "two") == ErrorCode.KAFKA_STORAGE_ERROR
    assert ask(stage, tmp_path / "one") == 0, "where it is"


def test_a_replica_to_come_is_made_where_it_is_wanted(stage: Any, tmp_path: Path) -> None:
    stage.topic("b")
    stage.topic("c")
    assert ask(stage, tmp_path / "one", "a") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stage.topic("d")
    stage.topic("a")
    home = stage.broker.log_directories.home(stage.partition("a").log)
    assert home.path == str(tmp_path / "one")
    stage.topic("e")
    home = stage.broker.log_directories.home(stage.partition("e").log)
    assert home.path == str(tmp_path / "two"), "the next goes by numbers again"


def test_a_replica_of_other_brokers_is_told_from_a_topic_that_is_not_there(
    stage: Any, tmp_path: Path
) -> None:
    """Kafka's tools tell users of the two in other words."""
    stage.topic("elsewhere", leader=2, replicas=(2,))
    assert ask(stage, tmp_path / "one", "elsewhere") == ErrorCode.REPLICA_NOT_AVAILABLE
    assert ask(stage, tmp_path / "one", "elsewhere", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(stage, tmp_path / "one", "missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(stage, "no such directory", "missing") == ErrorCode.LOG_DIR_NOT_FOUND


def test_a_move_is_called_back_by_asking_for_where_it_is(stage: Any, tmp_path: Path) -> None:
    fill(stage)
    ask(stage, tmp_path / "two")
    assert ask(stage, tmp_path / "one") == 0
    assert described(stage)["two"] == []
    carry_out(stage)
    assert stage.partition("a").log.path == str(tmp_path / "one/a-0")
    assert stage.broker.metrics.failed_moves == 0
    assert not list((tmp_path / "two").glob("*-future"))


@pytest.mark.parametrize("when", [Step.COPY, Step.SYNC, Step.ANNOUNCE, Step.NAME, Step.LEAVE])
def test_a_topic_may_be_deleted_and_made_again_meanwhile(
    stage: Any, tmp_path: Path, when: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)
    fill(stage)
    ask(stage, tmp_path / "two")
    log = stage.partition("a").log
    done: list[Any] = []

    def delete(move: ReplicaMove, step: Step) -> None:
        if step is when and not done:
            done.append(step)
            partition = stage.broker.partitions.pop(("a", 0))
            partition.retire()
            stage.broker.log_directories.delete_log(log, 0)
            new = stage.broker.log_directories.create_log("a", 0, log.topic_id, log.config, 0)
            done.append(new)

    carry_out(stage, delete)
    assert done[0] is when
    assert done[1].log_end_offset == 0
    assert not log.flush_state.is_held
    found = [each for each in (tmp_path / "one/a-0", tmp_path / "two/a-0") if each.exists()]
    assert found == [Path(done[1].path)]
    assert not list((tmp_path / "two").glob("*-future"))


def test_a_topic_made_again_while_its_new_disk_fails_has_a_storage_error(
    stage: Any, tmp_path: Path
) -> None:
    """Its name is still that of the old log on the one disk, and the other disk is gone."""
    fill(stage)
    ask(stage, tmp_path / "two")
    log, directories = stage.partition("a").log, stage.broker.log_directories
    refusals: list[KafkaError] = []

    def fail(move: ReplicaMove, step: Step) -> None:
        if step is Step.NAME:
            directories.fail(move.target, DISK_FULL)
            stage.broker.partitions.pop(("a", 0)).retire()
            directories.delete_log(log, 0)
            with pytest.raises(KafkaError) as refused:
                directories.create_log("a", 0, log.topic_id, log.config, 0)
            refusals.append(refused.value)

    carry_out(stage, fail)
    assert [each.code for each in refusals] == [ErrorCode.KAFKA_STORAGE_ERROR]
    directories.create_log("a", 0, log.topic_id, log.config, 0)
    assert folders(tmp_path / "one").count("a-0") == 2, "the new log, and the old one to remove"


@pytest.mark.parametrize("when", [Step.COPY, Step.SYNC, Step.NOTE, Step.ANNOUNCE])
def test_a_log_that_is_cut_meanwhile_is_copied_anew(
    stage: Any, tmp_path: Path, when: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)
    fill(stage)
    ask(stage, tmp_path / "two")
    log = stage.partition("a").log
    done: list[Step] = []

    def cut(step: Step) -> None:
        if step is when and when not in done:
            log.truncate_to(11)
            for directory in stage.broker.log_directories.live:
                directory.write_checkpoints()
            log.append_as_leader(batch(size=300), leader_epoch=99, now_ms=1)
        done.append(step)

    carry_out(stage, after=cut)
    assert when in done
    assert log.path == str(tmp_path / "two/a-0")
    assert (log.log_end_offset, log.last_leader_epoch) == (12, 99)
    assert (tmp_path / "two/a-0/00000000000000000000.log").stat().st_size == log.size
    assert log.read(11, 1, end_offset=12, minimum_one_batch=True).records.length == 300


@pytest.mark.parametrize("when", [Step.SYNC, Step.NOTE, Step.ANNOUNCE])
def test_no_snapshot_from_before_a_cut_moves(stage: Any, tmp_path: Path, when: Step) -> None:
    """The log is as long again, and rolled where it was: name and size of a snapshot are the same.

    After a kill the stale one would know producers, and open transactions, of what was cut off.
    """
    fill(stage)
    log = stage.partition("a").log

    def write(producer_id: int) -> None:
        content = batch(size=300, producer=(producer_id, 0, 0))
        log.append_as_leader(content, leader_epoch=log.last_leader_epoch, now_ms=1)
        log.roll(1)

    write(producer_id=5)
    ask(stage, tmp_path / "two")
    done: list[Step] = []

    def cut(step: Step) -> None:
        if step is when and when not in done:
            log.truncate_to(30)
            for directory in stage.broker.log_directories.live:
                directory.write_checkpoints()
            write(producer_id=6)
        done.append(step)

    carry_out(stage, after=cut)
    assert log.path == str(tmp_path / "two/a-0")
    snapshot = (tmp_path / f"two/a-0/{31:020}.snapshot").read_bytes()
    assert [entry.producer_id for entry in decode_snapshot(snapshot)] == [6]


@pytest.mark.parametrize("when", list(Step)[2:9])
def test_a_disk_that_refuses_keeps_the_log_where_it_is(
    stage: Any, tmp_path: Path, when: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)
    fill(stage)
    ask(stage, tmp_path / "two")
    disk = stage.broker.log_directories.directories[1].disk

    def refuse(*_: object) -> None:
        raise DISK_FULL

    refusing: list[str] = []

    def fail(move: ReplicaMove, step: Step) -> None:
        if step is when and not refusing:
            for name in ("pwrite", "rename", "fsync", "fsync_directory"):
                refusing.append(name)
                patched.setattr(disk, name, refuse, raising=False)
        elif refusing:
            patched.undo()

    with pytest.MonkeyPatch.context() as patched:
        suspected = carry_out(stage, fail)
    log = stage.partition("a").log
    if not refusing or when is Step.HOLD:
        return
    assert log.path == str(tmp_path / "one/a-0")
    assert suspected == [tmp_path / "two"]
    assert stage.broker.metrics.failed_moves == 1
    assert not log.flush_state.is_held
    stage.append("a", b"goes on")


def test_there_must_be_room(stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)
    fill(stage)
    ask(stage, tmp_path / "two")
    disk = stage.broker.log_directories.directories[1].disk
    monkeypatch.setattr(disk, "bytes_free", lambda _: 1 << 20, raising=False)
    carry_out(stage)
    assert stage.broker.metrics.failed_moves == 1
    assert stage.partition("a").log.path == str(tmp_path / "one/a-0")


def test_a_move_that_fails_may_be_asked_for_again_at_once(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that it is under way would be wrong: its copy is about to be removed."""
    monkeypatch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)
    fill(stage)
    ask(stage, tmp_path / "two")
    disk = stage.broker.log_directories.directories[1].disk
    asked: list[Step] = []

    def again(move: ReplicaMove, step: Step) -> None:
        if step is Step.REMOVE and not asked:
            asked.append(step)
            patched.undo()
            stage.broker.log_directories.moves.ask(("a", 0), str(tmp_path / "two"), failed={})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(disk, "bytes_free", lambda _: 1 << 20, raising=False)
        carry_out(stage, again)
    assert stage.partition("a").log.path == str(tmp_path / "two/a-0")
    assert not list((tmp_path / "two").glob("*-future"))


def test_an_index_that_grows_after_it_was_copied_is_copied_again(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup has built it anew, because it did not fit the segment."""
    monkeypatch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)
    fill(stage)
    log = stage.partition("a").log
    log.roll(1)
    stage.append("a", b"x" * 3_000)
    ask(stage, tmp_path / "two")
    done: list[Step] = []

    def rebuild(step: Step) -> None:
        if step is Step.SYNC and not done:
            done.append(step)
            log.segments[0].index_interval_bytes = 1_000
            log.segments[0].rebuild_indexes()

    carry_out(stage, after=rebuild)
    assert log.path == str(tmp_path / "two/a-0")
    index = log.segments[0].offset_index
    assert index.size > 0
    assert Path(index.path).stat().st_size == index.size


def test_flushes_wait_only_while_the_log_has_two_homes(stage: Any, tmp_path: Path) -> None:
    fill(stage)
    ask(stage, tmp_path / "two")
    log = stage.partition("a").log
    held = {}

    def note(move: ReplicaMove, step: Step) -> None:
        held[step] = log.begin_flush() is None
        if not held[step]:
            log.flush_state.is_running = False

    carry_out(stage, note)
    assert {step for step, is_held in held.items() if is_held} == {
        Step.ANNOUNCE,
        Step.SWITCH,
        Step.NAME,
        Step.LET_GO,
    }


def test_a_stop_leaves_a_move_to_the_next_start(stage: Any, tmp_path: Path) -> None:
    fill(stage)
    ask(stage, tmp_path / "two")

    async def act() -> None:
        mover = ReplicaMover(stage.broker, on_disk_error=lambda path: None)
        running = asyncio.create_task(mover.run())
        mover.stop()
        await running

    stage.run(act())
    assert stage.broker.log_directories.close(clean=True, broker_epoch=3)
    stage.broker = stage.run(stage._start())
    assert [move.target.path for move in stage.broker.log_directories.moves] == [
        str(tmp_path / "two")
    ]
    assert stage.broker.log_directories.start.unclean == []


def test_a_rate_holds_a_move_back_until_it_is_lifted(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still: what may go in a tenth of a second goes, and no more."""
    monkeypatch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)
    for name in ("MOVE_STEP_BYTES", "THROTTLED_SLICE_BYTES"):
        monkeypatch.setattr(f"fairlead_broker.tasks.replica_mover.{name}", 4_000)
    monkeypatch.setattr("fairlead_broker.tasks.replica_mover.HELD_BACK_MAX_S", 0.01)
    fill(stage)
    ask(stage, tmp_path / "two")
    (move,) = stage.broker.log_directories.moves
    rates = {"replica.alter.log.dirs.io.max.bytes.per.second": 100_000}
    monkeypatch.setattr(stage.broker, "running_number", rates.__getitem__)

    async def act() -> None:
        mover = ReplicaMover(stage.broker, on_disk_error=lambda path: None)
        running = asyncio.create_task(mover.run())
        await until(lambda: move.copied_bytes == 12_000)
        await asyncio.sleep(0.1)
        assert move.copied_bytes == 12_000, "three steps: the third is more than may go"
        assert move.offset_lag > 20
        rates["replica.alter.log.dirs.io.max.bytes.per.second"] = (1 << 63) - 1
        await until(lambda: not list(stage.broker.log_directories.moves))
        mover.stop()
        await running

    stage.run(act())
    assert stage.partition("a").log.path == str(tmp_path / "two/a-0")


def test_off_a_full_disk_a_replica_takes_records_again(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_watch, "LOOK_S", 0.01)
    fill(stage)
    partition = stage.partition("a")
    full_disk.run_out(partition.log, DISK_FULL)
    assert ask(stage, tmp_path / "two") == 0

    async def act() -> None:
        resumed = asyncio.Event()
        watch = room_watch.RoomWatch(stage.broker, on_resumed=resumed.set)
        watch.note(partition)
        mover = ReplicaMover(stage.broker, on_disk_error=lambda _: None)
        running = asyncio.create_task(mover.run())
        await until(lambda: not list(stage.broker.log_directories.moves))
        mover.stop()
        await running
        await resumed.wait()
        await watch.stop()

    stage.run(act())
    assert folders(tmp_path / "two") == ["a-0"]
    assert partition.log.refusal is not None, "only once the cut is durable"
    stage.broker.log_directories.home(partition.log).write_checkpoints()
    stage.append("a", b"goes on")
