"""Several moves between log directories at once, their order, and what a start makes of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_batches import batch
from waiting import until

from fairlead_broker.limits import MOVE_ROOM_BYTES
from fairlead_broker.log.moving.copied_segments import decode_copied
from fairlead_broker.log.moving.move_plan import Step
from fairlead_broker.log.moving.replica_move import ReplicaMove
from fairlead_broker.replication.token_bucket import TokenBucket
from fairlead_broker.tasks import replica_mover
from fairlead_broker.tasks.replica_mover import RATE, ReplicaMover
from fairlead_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SETTINGS = {"log.dirs": "one,two,three", "log.segment.bytes": "1048576"}
pytestmark = pytest.mark.parametrize("stage", [SETTINGS], indirect=True)
SEGMENTS = 5
TOPICS = "abcdef"


def ask(stage: Any, path: Path, topic: str) -> int:
    answer = stage.ask(
        AlterReplicaLogDirsRequest(
            [AlterReplicaLogDir(str(path), [AlterReplicaLogDirTopic(topic, [0])])]
        ),
        2,
    )
    return int(answer.results[0].partitions[0].error_code)


def fill(stage: Any, topic: str) -> None:
    """Segments of some 10,000 bytes; all topics are in the first directory."""
    ask(stage, Path(stage.broker.log_directories.paths[0]), topic)
    stage.topic(topic)
    log = stage.partition(topic).log
    for _ in range(SEGMENTS):
        for _ in range(10):
            log.append_as_leader(batch(size=1_000), leader_epoch=log.last_leader_epoch, now_ms=1)
        log.roll(1)
    log.append_as_leader(batch(size=1_000), leader_epoch=log.last_leader_epoch, now_ms=1)


def home(stage: Any, topic: str) -> str:
    return stage.partition(topic).log.directory.parent.name  # type: ignore[no-any-return]


def futures(tmp_path: Path) -> list[str]:
    found = tmp_path.glob("*/*-future")
    return sorted(f"{path.parent.name}/{path.name.partition('.')[0]}" for path in found)


def killed(stage: Any) -> None:
    """Start again without a clean stop."""
    stage.broker.log_directories.close(clean=False)
    stage.broker = stage.run(stage._start())


class Mover:
    """A mover whose moves wait before they copy until they are let go."""

    def __init__(self, stage: Any, patch: pytest.MonkeyPatch, held: Step = Step.COPY) -> None:
        self.stage = stage
        self.moves = stage.broker.log_directories.moves
        self.mover = ReplicaMover(stage.broker, on_disk_error=lambda path: None)
        self.steps: list[tuple[str, Step]] = []
        self.is_held = True
        self.at_held: set[str] = set()
        begin, next_step = ReplicaMove.begin, ReplicaMove.next_step

        def noted(move: ReplicaMove, step: Step) -> Any:
            self.steps.append((move.log.topic, step))
            return begin(move, step)

        def holding(move: ReplicaMove) -> Step:
            step = next_step(move)
            if step is not held or not self.is_held:
                return step
            self.at_held.add(move.log.topic)
            return Step.WAIT

        patch.setattr(ReplicaMove, "begin", noted)
        patch.setattr(ReplicaMove, "next_step", holding)
        patch.setattr("fairlead_broker.log.moving.move_plan.MOVE_TAIL_BYTES_MAX", 1_000)

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def act() -> None:
            running = asyncio.create_task(self.mover.run())
            await story()
            self.mover.stop()
            await running

        self.stage.run(act())

    async def let_go(self) -> None:
        self.is_held = False
        await until(lambda: not list(self.moves))


def test_as_many_move_as_there_are_directories(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To each directory about as many, in the order in which they were asked for."""
    for topic in TOPICS:
        fill(stage, topic)
    for topic in TOPICS[:4]:
        ask(stage, tmp_path / "two", topic)
    for topic in TOPICS[4:]:
        ask(stage, tmp_path / "three", topic)
    mover = Mover(stage, monkeypatch)

    async def story() -> None:
        await until(lambda: len(mover.at_held) == 3)
        assert mover.at_held == {"a", "e", "b"}
        await mover.let_go()

    mover.run(story)
    assert [home(stage, topic) for topic in TOPICS] == ["two"] * 4 + ["three"] * 2
    assert futures(tmp_path) == []
    assert not list(tmp_path.glob("*/*/fairlead-copied-segments"))
    assert not list((tmp_path / "one").glob("?-0"))
    assert stage.broker.metrics.failed_moves == 0


def test_a_cancelled_move_does_not_wait_for_those_that_copy(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in TOPICS:
        fill(stage, topic)
        ask(stage, tmp_path / "two", topic)
    mover = Mover(stage, monkeypatch)

    async def story() -> None:
        await until(lambda: len(mover.at_held) == 3)
        for key in (("f", 0), ("a", 0)):
            assert mover.moves._call_back(key, "not wanted any more")
        await until(lambda: {("f", Step.REMOVE), ("a", Step.REMOVE)} <= set(mover.steps))
        await until(lambda: "d" in mover.at_held)
        await mover.let_go()

    mover.run(story)
    assert [home(stage, topic) for topic in TOPICS] == ["one", "two", "two", "two", "two", "one"]
    assert futures(tmp_path) == []


def test_a_second_order_waits_until_the_first_is_undone(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would hold the flushes of the same log, and mark it."""
    fill(stage, "a")
    ask(stage, tmp_path / "two", "a")
    mover = Mover(stage, monkeypatch)
    first = mover.moves.under_way["a", 0]

    async def story() -> None:
        await until(lambda: mover.at_held == {"a"})
        mover.moves.ask(("a", 0), str(tmp_path / "three"), failed={})
        second = mover.moves.under_way["a", 0]
        assert mover.moves.next_move([first], 3) is None
        assert mover.moves.next_move([], 3) is first
        await until(lambda: second in mover.mover._running)
        assert first not in list(mover.moves)
        await mover.let_go()

    mover.run(story)
    assert home(stage, "a") == "three"
    assert futures(tmp_path) == []
    assert [step for _, step in mover.steps if step in (Step.REMOVE, Step.KEEP)] == [
        Step.KEEP,
        Step.REMOVE,
        Step.KEEP,
    ]


def test_a_second_order_does_not_overtake_the_first_one(stage: Any, tmp_path: Path) -> None:
    """As many cancelled moves as may be are being undone, and that of the log is not among them."""
    for topic in "ab":
        fill(stage, topic)
        ask(stage, tmp_path / "two", topic)
    moves = stage.broker.log_directories.moves
    first, other = moves
    for topic in "ba":
        ask(stage, tmp_path / "three", topic)
    assert moves.next_move([other], 1) is None
    assert moves.next_move([other], 2) is first
    assert moves.next_move([other, first], 2) is None


def test_a_start_goes_on_with_the_last_order_alone(stage: Any, tmp_path: Path) -> None:
    """The mover has not come to undo the earlier ones when the process is killed."""
    for topic in "abc":
        fill(stage, topic)
        ask(stage, tmp_path / "two", topic)
    ask(stage, tmp_path / "three", "a")
    ask(stage, tmp_path / "one", "b")
    assert futures(tmp_path) == ["three/a-0", "two/c-0"]
    killed(stage)
    moves = stage.broker.log_directories.moves
    targets = {move.log.topic: Path(move.target.path).name for move in moves}
    assert targets == {"a": "three", "c": "two"}


def test_the_copy_of_a_deleted_topic_is_not_set_aside(stage: Any, tmp_path: Path) -> None:
    """Nobody would ever remove it."""
    fill(stage, "a")
    ask(stage, tmp_path / "two", "a")
    stage.broker.log_directories.delete_log(stage.partition("a").log, 0)
    killed(stage)
    assert futures(tmp_path) == []
    assert not list(tmp_path.glob("*/*-stray"))


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_copies_what_is_not_copied_yet(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    monkeypatch.setattr("fairlead_broker.disk.SETTLED_NS", 0)
    fill(stage, "a")
    ask(stage, tmp_path / "two", "a")
    (future,) = (tmp_path / "two").glob("*-future")
    listed = future / "fairlead-copied-segments"
    with pytest.MonkeyPatch.context() as patch:
        mover = Mover(stage, patch)
        mover.is_held = False

        def count() -> int:
            return len(decode_copied(listed.read_bytes())) if listed.exists() else 0

        async def story() -> None:
            await until(lambda: mover.is_held)

        begin = ReplicaMove.begin

        def stop(move: ReplicaMove, step: Step) -> Any:
            mover.is_held = count() == SEGMENTS - 1
            return begin(move, step)

        patch.setattr(ReplicaMove, "begin", stop)
        mover.run(story)
    assert count() == SEGMENTS - 1
    copied = {path.name: path.stat().st_ctime_ns for path in future.glob("*.log")}
    if is_clean:
        assert stage.broker.log_directories.close(clean=True, broker_epoch=3)
        stage.broker = stage.run(stage._start())
    else:
        killed(stage)
    (move,) = stage.broker.log_directories.moves
    rates = {RATE: 200_000}
    monkeypatch.setattr(stage.broker, "running_number", rates.__getitem__)
    again = Mover(stage, monkeypatch)
    bucket = again.mover._bucket = TokenBucket(rates[RATE])

    async def look() -> None:
        await until(lambda: again.at_held == {"a"})
        assert move.copied_bytes == 10_000 * (SEGMENTS - 1)
        assert 0 < move.offset_lag <= 11 + 1
        assert not bucket.delay_ms(stage.clock.monotonic_ms()), "nothing was copied"
        await again.let_go()

    again.run(look)
    log = stage.broker.log_directories.log("a", 0)
    assert log.directory == tmp_path / "two/a-0"
    assert log.log_end_offset == 10 * SEGMENTS + 1
    kept = sorted(copied)[: SEGMENTS - 1]
    # A rename of the directory changes no file in it.
    assert [(log.directory / name).stat().st_ctime_ns for name in kept] == [
        copied[name] for name in kept
    ]


def test_a_file_that_changed_just_now_has_no_version(stage: Any, tmp_path: Path) -> None:
    fill(stage, "a")
    log = stage.partition("a").log
    assert log.disk.version(log.segments[0].path) is None


def test_all_moves_share_the_rate(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still: what may go in a tenth of a second goes, and no more."""
    for name in ("MOVE_STEP_BYTES", "THROTTLED_SLICE_BYTES"):
        monkeypatch.setattr(replica_mover, name, 4_000)
    monkeypatch.setattr(replica_mover, "HELD_BACK_MAX_S", 0.01)
    for topic in "abc":
        fill(stage, topic)
        ask(stage, tmp_path / "two", topic)
    moves = list(stage.broker.log_directories.moves)
    rates = {RATE: 100_000}
    monkeypatch.setattr(stage.broker, "running_number", rates.__getitem__)
    mover = Mover(stage, monkeypatch)
    mover.is_held = False

    def copied() -> int:
        return sum(move.copied_bytes for move in moves)

    async def story() -> None:
        await until(lambda: copied() >= 12_000)
        await asyncio.sleep(0.1)
        assert copied() == 12_000, "three steps: the third is more than may go"
        assert len(mover.mover._running) == 3
        rates[RATE] = (1 << 63) - 1
        await mover.let_go()

    mover.run(story)
    assert [home(stage, topic) for topic in "abc"] == ["two"] * 3


def test_where_there_is_room_for_one_replica_one_moves(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If both were copied side by side, neither would find room for its end."""
    monkeypatch.setattr("fairlead_broker.log.moving.replica_move.MOVE_STEP_BYTES", 4_000)
    monkeypatch.setattr(replica_mover, "MOVE_STEP_BYTES", 4_000)
    monkeypatch.setattr(replica_mover, "THROTTLED_SLICE_BYTES", 4_000)
    monkeypatch.setattr(replica_mover, "ROOM_WAIT_S", 0.01)
    for topic in "ab":
        fill(stage, topic)
        ask(stage, tmp_path / "two", topic)
    size = stage.partition("a").log.size
    disk = stage.broker.log_directories.directories[1].disk
    room = MOVE_ROOM_BYTES + size + 1_000

    def bytes_free(_: str) -> int:
        taken = sum(path.stat().st_size for path in (tmp_path / "two").glob("*/*.log"))
        return int(room - taken)

    monkeypatch.setattr(disk, "bytes_free", bytes_free, raising=False)
    mover = Mover(stage, monkeypatch)
    mover.run(mover.let_go)
    assert [home(stage, topic) for topic in "ab"] == ["two", "one"]
    assert stage.broker.metrics.failed_moves == 1


def test_a_stop_leaves_all_moves_to_the_next_start(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in TOPICS:
        fill(stage, topic)
        ask(stage, tmp_path / "two", topic)
    mover = Mover(stage, monkeypatch, held=Step.SYNC)

    async def story() -> None:
        await until(lambda: len(mover.at_held) == 3)

    mover.run(story)
    assert stage.broker.log_directories.close(clean=True, broker_epoch=3)
    stage.broker = stage.run(stage._start())
    assert len(list(stage.broker.log_directories.moves)) == len(TOPICS)
    assert stage.broker.log_directories.start.unclean == []
