"""Real brokers on file systems that are really full: who leads, who reads, and how it ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from live_broker import FrameClient
from replicated_topic import TOPIC, Story
from small_disks import SmallDisk, small_disk
from waiting import wait_until

from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MEBIBYTES = 48


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[SmallDisk]]:
    """Three of them."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(small_disk(tmp_path / f"disk-{number}", MEBIBYTES))
            for number in range(3)
        ]


def start(cluster: Any, disks: list[SmallDisk], **settings: str) -> Story:
    """Start a broker on each disk, with a topic that all of them hold."""
    for number, disk in enumerate(disks):
        data = disk.path / "data"
        broker = cluster.make_broker(number, **{"log.dirs": str(data)}, **settings)
        broker.data = data
        cluster.brokers.append(broker)
        broker.start()
    return Story(cluster)


def refusal(cluster: Any) -> str:
    """Why a record is refused if it is sent once; empty if it is not."""
    told: list[str] = []
    once = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0}
    producer = Producer(once)
    producer.produce(
        TOPIC, b"once", on_delivery=lambda error, _: told.append(error.name() if error else "")
    )
    assert producer.flush(60) == 0
    return told[0]


def shrink(story: Story, retention_bytes: int) -> None:
    """Keep no more than that."""
    entry = ConfigEntry(
        "retention.bytes", str(retention_bytes), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    story.admin.incremental_alter_configs([resource])[resource].result(60)


def test_records_go_on_where_there_is_room_and_full_ones_come_back_by_themselves(
    disks: list[SmallDisk], make_cluster: Callable[..., Any]
) -> None:
    cluster = make_cluster(brokers=0, is_patient=True)
    story = start(cluster, disks)
    story.create()
    story.produce(200)
    story.flush()
    first = story.leader()
    disks[first].fill()
    story.produce(2_000, size=1_000)
    story.until(lambda: story.leader() not in {-1, first})
    story.flush()
    story.until(lambda: first not in story.isr())
    leader = story.leader()
    (second,) = {0, 1, 2} - {first, leader}
    disks[second].fill()

    def has_left() -> bool:
        story.produce(1, size=5_000)
        return story.isr() == {leader}

    story.until(has_left)
    story.until(lambda: refusal(cluster) == "NOT_ENOUGH_REPLICAS")
    assert story.consume(2_200) == story.sent[:2_200]
    disks[first].empty()
    story.until(lambda: story.isr() == {leader, first})
    disks[second].empty()
    story.until(lambda: story.isr() == {0, 1, 2})
    story.check_nothing_is_lost()
    story.until(lambda: len({story.log_bytes(broker) for broker in cluster.brokers}) == 1)
    assert all(broker.is_running for broker in cluster.brokers)
    assert "has no room" in cluster.brokers[first].log.read_text()
    for broker in cluster.brokers:
        for line in ("Traceback", "invariant"):
            assert line not in broker.log.read_text()


def test_a_full_broker_without_others_serves_readers_and_makes_room_by_retention(
    disks: list[SmallDisk], make_cluster: Callable[..., Any]
) -> None:
    cluster = make_cluster(brokers=0)
    settings = {"log.retention.check.interval.ms": "200", "offsets.topic.replication.factor": "1"}
    story = start(cluster, disks[:1], **settings)
    config = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "0"}
    story.create_with(config, replication_factor=1)
    (broker,) = cluster.brokers
    story.produce(20_000, size=1_000)
    story.flush()
    disks[0].fill()
    wait_until(lambda: refusal(cluster) == "KAFKA_STORAGE_ERROR")
    assert story.leader() == 0
    assert story.consume(20_000) == story.sent
    _, page = broker.get("/metrics")
    assert "fairlead_partitions_without_room" in page
    broker.stop()
    for end in (broker.kill, broker.stop, broker.kill):
        # Again and again: what is kept back for a start is not filled by records.
        broker.start()
        assert story.consume(20_000) == story.sent
        assert refusal(cluster) == "KAFKA_STORAGE_ERROR"
        end()
    broker.start()
    shrink(story, 1 << 20)
    wait_until(lambda: refusal(cluster) == "")
    assert broker.stop() == 0
    broker.start()
    assert refusal(cluster) == ""
    assert "Traceback" not in broker.log.read_text()


def test_a_replica_moves_off_a_full_disk_and_takes_records_again(
    disks: list[SmallDisk], make_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster = make_cluster(brokers=0)
    full, roomy = disks[0].path / "data", tmp_path / "roomy"
    broker = cluster.make_broker(0, **{"log.dirs": f"{full},{roomy}"})
    cluster.brokers.append(broker)
    broker.start()
    story = Story(cluster)
    story.create_with({}, replication_factor=1)
    story.produce(2_000, size=1_000)
    story.flush()
    assert (full / f"{TOPIC}-0").is_dir()
    disks[0].fill()
    wait_until(lambda: refusal(cluster) == "KAFKA_STORAGE_ERROR")
    asked = AlterReplicaLogDirsRequest(
        [AlterReplicaLogDir(str(roomy), [AlterReplicaLogDirTopic(TOPIC, [0])])]
    )
    with FrameClient(int(broker.address.split(":")[1])) as client:
        (answer,) = client.call(asked, 2).results
    assert answer.partitions[0].error_code == ErrorCode.NONE
    wait_until(lambda: refusal(cluster) == "")
    assert (roomy / f"{TOPIC}-0").is_dir()
    assert story.consume(2_000) == story.sent
    broker.kill()
    broker.start()
    assert story.consume(2_000) == story.sent
    assert refusal(cluster) == ""
    assert not (full / f"{TOPIC}-0").exists()
    assert "Traceback" not in broker.log.read_text()
