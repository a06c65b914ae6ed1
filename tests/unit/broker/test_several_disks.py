"""A broker with two log directories serves on with one of them."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from fairlead_broker.disk import RealDisk
from fairlead_broker.http.metrics_page import MetricsPage
from fairlead_broker.http.readiness import Phase, Readiness
from fairlead_broker.http.server import HttpServer
from fairlead_broker.log import full_disk
from fairlead_broker.settings import HttpAddress
from fairlead_broker.tasks import room_watch
from fairlead_broker.tasks.checkpoints import CheckpointWriter
from fairlead_broker.tasks.disk_check import DiskCheck
from fairlead_broker.tasks.flusher import Flusher
from fairlead_model.cluster import PartitionChanged, empty_image
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_operator.pod_http import ask_pod
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

READ_ONLY = OSError(errno.EROFS, "read-only file system")
pytestmark = pytest.mark.parametrize("stage", [{"log.dirs": "one,two"}], indirect=True)


class UnsyncedFolder(RealDisk):
    """The names of one folder cannot be made durable."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fsync_directory(self, path: str, /) -> None:
        if path == self._path:
            raise OSError(errno.EIO, "input/output error", path)
        super().fsync_directory(path)


def in_executor(stage: Any, story: Callable[[ThreadPoolExecutor], Awaitable[None]]) -> None:
    async def act() -> None:
        with ThreadPoolExecutor(1) as executor:
            await story(executor)

    stage.run(act())


def homes(stage: Any) -> dict[str, str]:
    directories = stage.broker.log_directories
    return {
        topic: Path(directories.home(partition.log).path).name
        for (topic, _), partition in stage.broker.partitions.items()
    }


def fail_second(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of `b` cannot be written, and the disk takes no write at all."""
    second = stage.broker.log_directories.directories[1]
    monkeypatch.setattr(second, "probe", lambda: READ_ONLY)
    stage.partition("b").log.go_offline(READ_ONLY)

    async def story(executor: ThreadPoolExecutor) -> None:
        check = DiskCheck(stage.broker, executor)
        check.on_offline(stage.partition("b"))
        await check.finished()

    in_executor(stage, story)


def test_a_failed_disk_costs_its_replicas_only(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in "abcd":
        stage.topic(topic)
    assert homes(stage) == {"a": "one", "b": "two", "c": "one", "d": "two"}
    fail_second(stage, monkeypatch)
    offline = {topic: stage.partition(topic).log.is_offline for topic in "abcd"}
    assert offline == {"a": False, "b": True, "c": False, "d": True}
    stage.append("a", b"goes on")
    assert stage.broker.partition_error("d", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    stage.topic("e")
    stage.topic("f")
    assert {homes(stage)[topic] for topic in "ef"} == {"one"}


def test_directories_are_described_each_and_a_failed_one_with_an_error(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.topic("a")
    stage.topic("b")

    def described() -> dict[str, tuple[int, list[str], bool]]:
        answer = stage.ask(DescribeLogDirsRequest(topics=None), 4)
        return {
            Path(each.log_dir).name: (
                each.error_code,
                [topic.name for topic in each.topics],
                each.total_bytes > 0,
            )
            for each in answer.results
        }

    assert described() == {"one": (0, ["a"], True), "two": (0, ["b"], True)}
    fail_second(stage, monkeypatch)
    assert described() == {
        "one": (0, ["a"], True),
        "two": (ErrorCode.KAFKA_STORAGE_ERROR, [], False),
    }


def test_metrics_tell_each_directory_and_how_many_have_failed(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.topic("a")
    stage.topic("b")
    page = MetricsPage(Readiness(phase=Phase.SERVING))
    page.broker = stage.broker
    text = stage.run(page.text())
    for folder in ("one", "two"):
        assert f'fairlead_disk_size_bytes{{log_dir="{tmp_path / folder}"}}' in text
    assert "\nkafka_log_logmanager_offlinelogdirectorycount 0\n" in text
    offline = "kafka_log_logmanager_logdirectoryoffline"
    assert f'\n{offline}{{log_dir="{tmp_path / "two"}"}} 0\n' in text
    fail_second(stage, monkeypatch)
    text = stage.run(page.text())
    assert f'fairlead_disk_size_bytes{{log_dir="{tmp_path / "two"}"}}' not in text
    assert "\nkafka_log_logmanager_offlinelogdirectorycount 1\n" in text
    assert f'\n{offline}{{log_dir="{tmp_path / "one"}"}} 0\n' in text
    assert f'\n{offline}{{log_dir="{tmp_path / "two"}"}} 1\n' in text
    cordoned = "kafka_log_logmanager_logdirectorycordoned"
    assert "\nkafka_log_logmanager_cordonedlogdirectorycount 0\n" in text
    stage.broker.log_directories.cordon([str(tmp_path / "one")])
    text = stage.run(page.text())
    assert "\nkafka_log_logmanager_cordonedlogdirectorycount 1\n" in text
    assert f'\n{cordoned}{{log_dir="{tmp_path / "one"}"}} 1\n' in text
    assert f'\n{cordoned}{{log_dir="{tmp_path / "two"}"}} 0\n' in text


def test_the_health_page_names_the_directories_that_have_failed(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.topic("a")
    stage.topic("b")
    server = HttpServer(Readiness(phase=Phase.SERVING))
    server.metrics.broker = stage.broker

    async def asked() -> Any:
        port = await server.start(HttpAddress("127.0.0.1", 0))
        try:
            return (await ask_pod("127.0.0.1", port, "/healthz", timeout_s=5.0)).json()
        finally:
            await server.stop()

    assert stage.run(asked()) == {"state": "serving"}
    fail_second(stage, monkeypatch)
    answer = stage.run(asked())
    assert list(answer["failedLogDirectories"]) == [str(tmp_path / "two")]


def test_a_directory_is_drained_once_it_is_cordoned_and_nothing_is_in_it_or_comes(
    stage: Any, tmp_path: Path
) -> None:
    directories = stage.broker.log_directories
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    stage.topic("a")
    assert homes(stage) == {"a": "one"}
    assert directories.drained == [], "nothing keeps new replicas out of the empty one"
    directories.cordon([two])
    assert directories.drained == [two]
    directories.cordon([])
    directories.moves.ask(("a", 0), two, failed={})
    directories.cordon([one])
    assert directories.drained == [], "its replica is still on its way"
    directories.cordon([two])
    assert directories.drained == [], "what was to come is not called back yet"
    directories.offline["lost", 0] = "damaged"
    assert directories.drained == []


def test_each_directory_has_checkpoints_of_its_own_logs(stage: Any, tmp_path: Path) -> None:
    for topic in "ab":
        stage.topic(topic)
        stage.append(topic, b"x")
    in_executor(stage, lambda executor: CheckpointWriter(stage.broker, executor).write())
    for folder, topic in (("one", "a"), ("two", "b")):
        text = (tmp_path / folder / "replication-offset-checkpoint").read_text()
        assert text.splitlines() == ["0", "1", f"{topic} 0 1"]


def test_names_that_one_disk_does_not_keep_hold_up_no_other_disk(stage: Any) -> None:
    for topic in "ab":
        stage.topic(topic)
    first, second = stage.broker.log_directories.directories
    first.deferred._disk = UnsyncedFolder(first.path)
    suspected: list[str] = []

    async def story(executor: ThreadPoolExecutor) -> None:
        flusher = Flusher(
            stage.broker, executor, on_offline=lambda _: None, on_disk_error=suspected.append
        )
        await flusher._round()

    in_executor(stage, story)
    assert suspected == [first.path]
    assert second.begin_sync() is None, "its names have been made durable"
    assert all(log.is_offline for log in first.logs), "their folders may be gone after a power cut"
    assert not any(log.is_offline for log in second.logs)


def test_a_disk_that_does_not_tell_its_room_keeps_no_other_from_taking_records_again(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_watch, "LOOK_S", 0.01)
    for topic in "ab":
        stage.topic(topic)
        full_disk.run_out(stage.partition(topic).log, OSError(errno.ENOSPC, "no space left"))
    first, _ = stage.broker.log_directories.directories

    def refuse(_: str) -> int:
        raise OSError(errno.EIO, "input/output error")

    async def act() -> None:
        watch = room_watch.RoomWatch(stage.broker, on_resumed=lambda: None)
        for topic in "ab":
            watch.note(stage.partition(topic))
        monkeypatch.setattr(first.disk, "bytes_free", refuse)
        watch._wanted = dict.fromkeys(watch._wanted, 1)
        await until(lambda: not stage.partition("b").log.lacks_room)
        await watch.stop()

    stage.run(act())
    assert stage.partition("a").log.lacks_room


def test_a_replica_that_may_be_on_an_unreadable_disk_is_not_made_elsewhere(
    stage: Any, tmp_path: Path
) -> None:
    topic_ids = {topic: stage.topic(topic) for topic in "ab"}
    stage.broker.log_directories.close(clean=True, broker_epoch=7)
    (tmp_path / "two").rename(tmp_path / "away")
    (tmp_path / "two").write_text("no folder")
    stage.broker = stage.run(stage._start())
    changes, stage.image = stage.image.changes_from_nothing(), empty_image("test-cluster")
    stage.publish(*changes)
    assert homes(stage) == {"a": "one"}
    assert stage.broker.partition_error("b", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    removed = PartitionRegistration(
        replicas=(2,), isr=(2,), leader=2, partition_epoch=1, unconfirmed_removals=(1,)
    )
    told = []
    stage.broker.replicas._listener.on_replica_removed = lambda *each: told.append(each)
    stage.publish(PartitionChanged(TopicId(topic_ids["b"]), 0, removed))
    assert told == [], "its files may still be there"
    stage.topic("new")
    assert homes(stage) == {"a": "one", "new": "one"}
