"""A group of 100 members over 1,000 partitions, and the death of the broker that coordinates it.

The members are librdkafka's consumers with their default settings. The group has settled when each
partition has delivered a record that was written after the kill: leaders have moved, the offsets
partition was loaded elsewhere, and every member knows whom to ask.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from drill_settings import allowed_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from fairlead_bench.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.fairlead_cluster import FairleadCluster

MEMBERS, PARTITIONS = 100, 1_000
SETTLED_MS = 5_000
DEADLINE_S = 120.0
GROUP, TOPIC = "large", "wide"
SETTINGS = {"offsets.topic.replication.factor": "3", "group.initial.rebalance.delay.ms": "1000"}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadCluster]:
    started = FairleadCluster(tmp_path_factory.mktemp("large"), SETTINGS)
    with started:
        started.start()
        wait_until_serving(started)
        admin = AdminClient({"bootstrap.servers": started.bootstrap, "log_level": 2})
        wanted = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])[TOPIC].result(60)
        wait_until_in_sync(started, partitions=PARTITIONS, topics=[TOPIC])
        yield started


class Group:
    """All members in one thread: each is polled in turn."""

    def __init__(self, bootstrap: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "log_level": 2,
        }
        self.assigned: dict[int, set[int]] = {}
        self.members = []
        for number in range(MEMBERS):
            member = Consumer(settings)
            member.subscribe([TOPIC], on_assign=self._note(number), on_revoke=self._forget(number))
            self.members.append(member)

    def _note(self, number: int):  # type: ignore[no-untyped-def]
        def assigned(_: Consumer, places: list[TopicPartition]) -> None:
            self.assigned[number] = {place.partition for place in places}

        return assigned

    def _forget(self, number: int):  # type: ignore[no-untyped-def]
        return lambda *_: self.assigned.pop(number, None)

    def close(self) -> None:
        # All unsubscribe first: librdkafka's close can wait for itself for ever, in a member that
        # is given partitions anew because the one before it has left.
        for member in self.members:
            member.unsubscribe()
        for member in self.members:
            member.close()

    def poll(self) -> list[tuple[int, bytes]]:
        """What each member has now: partition and value."""
        found = []
        for member in self.members:
            message = member.poll(0)
            if message is not None and message.error() is None:
                found.append((message.partition(), message.value()))
        return found

    def read_until_all(self, value: bytes) -> float:
        """Until every partition has delivered this value; when that was."""
        missing = set(range(PARTITIONS))
        deadline = time.monotonic() + DEADLINE_S
        while missing:
            for partition, found in self.poll():
                if found == value:
                    missing.discard(partition)
            assert time.monotonic() < deadline, f"{len(missing)} partitions deliver nothing"
        return time.monotonic()


def write_to_all(producer: Producer, value: bytes) -> None:
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def coordinator_of(cluster: FairleadCluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    described = admin.describe_consumer_groups([GROUP])[GROUP].result(30)
    assert len(described.members) == MEMBERS
    return int(described.coordinator.id)


def test_a_large_group_settles_after_its_coordinator_died(cluster: FairleadCluster) -> None:
    group = Group(cluster.bootstrap)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    write_to_all(producer, b"before")
    group.read_until_all(b"before")
    held = sorted(partition for places in group.assigned.values() for partition in places)
    assert held == list(range(PARTITIONS)), "partitions without a member, or with two"
    wait_until_in_sync(cluster, partitions=50, topics=["__consumer_offsets"])

    index = coordinator_of(cluster)
    cluster.kill_broker(index)
    killed = time.monotonic()
    write_to_all(producer, b"after")
    settled_ms = (group.read_until_all(b"after") - killed) * 1000
    print(json.dumps({"members": MEMBERS, "partitions": PARTITIONS, "settled_ms": settled_ms}))
    assert settled_ms <= allowed_ms(SETTLED_MS)
    group.close()
