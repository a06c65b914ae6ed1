"""A real broker with two log directories, of which one comes back empty."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from kafka.admin import KafkaAdminClient
from replicated_topic import TOPIC, Story

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTITIONS = 4


def partitions_in(disk: Path) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in disk.glob(f"{TOPIC}-*")}


def described(bootstrap: str, broker_id: int) -> dict[str, set[int]]:
    """What `DescribeLogDirs` tells, as kafka-log-dirs asks for it."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (answer,) = admin.describe_log_dirs(brokers=[broker_id])
        assert all(each["error_code"] == 0 for each in answer["log_dirs"])
        assert all(each["total_bytes"] > each["usable_bytes"] > 0 for each in answer["log_dirs"])
        return {
            each["log_dir"]: {
                partition["partition_index"]
                for topic in each["topics"]
                if topic["name"] == TOPIC
                for partition in topic["partitions"]
            }
            for each in answer["log_dirs"]
        }
    finally:
        admin.close()


def test_a_replaced_disk_costs_its_replicas_and_no_record(make_cluster: Callable[..., Any]) -> None:
    """Both brokers have everything; broker 1 comes back first, without one of its disks."""
    cluster = make_cluster(brokers=1)
    disks = [cluster.directory / "disk-a", cluster.directory / "disk-b"]
    cluster.brokers.append(cluster.make_broker(1, **{"log.dirs": ",".join(map(str, disks))}))
    cluster.brokers[1].start()
    story = Story(cluster)
    story.create_with({"min.insync.replicas": "2"}, PARTITIONS, replication_factor=2)
    for partition in range(PARTITIONS):
        story.produce(10, partition=partition)
    story.flush()
    assert sorted(story.acknowledged) == story.sent
    kept, lost = (partitions_in(disk) for disk in disks)
    assert (len(kept), len(lost)) == (PARTITIONS // 2, PARTITIONS // 2)
    assert described(cluster.bootstrap, 1) == {str(disk): partitions_in(disk) for disk in disks}
    first, second = cluster.brokers
    second.kill()
    story.until(lambda: all(story.isr(index) == {0} for index in range(PARTITIONS)))
    first.kill()
    shutil.rmtree(disks[1])
    second.start()
    # An eligible replica where its disk is the same, and nothing where it is another one.
    story.until(lambda: {story.leader(index) for index in kept} == {1})
    assert {story.leader(index) for index in lost} == {-1}
    first.start()
    story.until(lambda: {story.leader(index) for index in lost} == {0})
    story.until(lambda: all(story.isr(index) == {0, 1} for index in range(PARTITIONS)))
    for partition in range(PARTITIONS):
        expected = story.sent[10 * partition : 10 * partition + 10]
        assert story.consume(10, partition=partition) == expected
    assert len(partitions_in(disks[0]) | partitions_in(disks[1])) == PARTITIONS
