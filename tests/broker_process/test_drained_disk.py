"""A disk is taken away from a real broker under load: emptied, deleted, and started without."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from replicated_topic import TOPIC, Story

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTITIONS = 4
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SLOW = 200_000
COMMAND_TIMEOUT_S = 120


def logs_in(disk: Path) -> set[str]:
    """The replicas there, without what moves or is being deleted."""
    return {path.name for path in disk.glob("*-[0-9]")}


class Load:
    """Numbers for all partitions of the topic, with acks=all, until it is ended."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._ended = threading.Event()
        self.placed: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._thread = threading.Thread(target=self._run)

    def send(self, count: int, partition: int) -> None:
        first = len(self._story.sent)
        self._story.produce(count, partition=partition, size=1_000)
        self.placed[partition] += range(first, first + count)

    def _run(self) -> None:
        partition = 0
        while not self._ended.is_set():
            self.send(1, partition)
            partition = (partition + 1) % PARTITIONS
            self._story.producer.poll(0.01)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def command(cluster: Any, *arguments: str) -> subprocess.Popen[str]:
    """Begin `fairlead broker disks 1 …`."""
    words = ["broker", "disks", "1", *arguments, "--bootstrap", cluster.bootstrap]
    return subprocess.Popen(
        [sys.executable, "-m", "fairlead_cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    return process.returncode, out, err


def lift_the_throttle(admin: AdminClient) -> None:
    entry = ConfigEntry(RATE, str(1 << 40), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    (answer,) = admin.incremental_alter_configs([resource]).values()
    answer.result(30)


def test_a_disk_is_taken_away_under_load(make_cluster: Callable[..., Any]) -> None:
    """The broker is killed while the command waits, and started without the disk at the end."""
    cluster = make_cluster(brokers=1)
    kept, leaving = cluster.directory / "disk-a", cluster.directory / "disk-b"
    settings = {"log.dirs": f"{kept},{leaving}", RATE: str(SLOW)}
    broker = cluster.make_broker(1, **settings)
    cluster.brokers.append(broker)
    broker.start()
    story = Story(cluster)
    story.create_with({"min.insync.replicas": "1"}, PARTITIONS, replication_factor=2)
    load = Load(story)
    for partition in range(PARTITIONS):
        load.send(1_000, partition)
    story.flush()
    held = logs_in(leaving)
    assert len(held) == PARTITIONS // 2
    load.start()
    try:
        draining = command(cluster, "--drain", str(leaving), "--wait", "-o", "json")
        assert draining.stderr is not None
        assert f"Still in {leaving}: 2 replicas" in draining.stderr.readline()
        story.until(lambda: bool(list(kept.glob("*-future"))))
        broker.kill()
        assert "Broker 1 does not answer; asking again." in draining.stderr.readline()
        broker.start()
        lift_the_throttle(story.admin)
        code, out, err = finished(draining)
        assert code == 0, err
        assert f"{leaving} holds no replica any more" in err
        rows = {row["path"]: row for row in json.loads(out)}
        assert (rows[str(leaving)]["cordoned"], rows[str(leaving)]["replicas"]) == (True, 0)
        story.until(lambda: logs_in(leaving) == set())
        story.admin.create_topics([NewTopic("new", 3, 2)])["new"].result(30)
        story.until(lambda: {f"new-{index}" for index in range(3)} <= logs_in(kept))
        assert logs_in(leaving) == set()
        assert broker.stop() == 0
        shutil.rmtree(leaving)
        broker._settings["log.dirs"] = str(kept)
        broker.start()
        story.until(lambda: all(story.isr(index) == {0, 1} for index in range(PARTITIONS)))
    finally:
        load.end()
    code, out, err = finished(command(cluster, "--undrain", str(leaving)))
    assert code == 0, err
    assert f"{leaving} is not among the cordoned folders" in out
    story.flush()
    assert story.refused == []
    story.until(lambda: all(story.isr(index) == {0, 1} for index in range(PARTITIONS)))
    cluster.brokers[0].kill()
    story.until(lambda: {story.leader(index) for index in range(PARTITIONS)} == {1})
    for partition, numbers in enumerate(load.placed):
        assert story.consume(len(numbers), partition=partition) == numbers
    assert held <= logs_in(kept)
    assert TOPIC in "".join(held)
