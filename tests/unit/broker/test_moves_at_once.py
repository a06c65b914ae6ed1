"""Moves between three log directories: their order, and what a start makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from log_batches import batch

from fairlead_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

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
