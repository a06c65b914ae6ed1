"""A group of 100 members over 1,000 partitions, and the death of a broker.

The group has settled when each partition has delivered a record that was written after the kill:
leaders have moved, the offsets partition was loaded elsewhere, and every member knows whom to ask.

The classic protocol: the members are librdkafka's consumers with their default settings. KIP-848:
members that cost little (`light_members`), because two cores show nothing of the brokers beside a
hundred of librdkafka's; also a broker dies that does not coordinate the group.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from os import getloadavg
from pathlib import Path
from typing import Any

import pytest
from classic_group import ClassicGroup
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from drill_settings import allowed_ms
from light_members import LightGroup
from processor_wait import Stopwatch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from fairlead_bench.loads.coordinator_lookup import KeyType, find_coordinator
from fairlead_bench.loads.process_usage import read_cpu
from fairlead_bench.peers.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster

MEMBERS, PARTITIONS = 100, 1_000
SETTLED_MS = 5_000
SETTLED_848_MS = 1_000
CLUSTER_CPU_S = 1.6
"""What a death may cost brokers and controller until the group has settled. Two cores have 2 s in
the second that is promised, and members and producer need some 0.4 s of them."""
TRIES = 3
# On a busy machine all of them may be needed, for two kinds of death.
pytestmark = pytest.mark.timeout(900)
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
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    size: Any = {"members": MEMBERS, "partitions": PARTITIONS}
    with ClassicGroup(cluster.bootstrap, GROUP, TOPIC, **size) as group:
        write_to_all(producer, b"before")
        group.read_until_all(b"before")
        assert group.held == list(range(PARTITIONS)), "partitions without a member, or with two"
        wait_until_in_sync(cluster, partitions=50, topics=["__consumer_offsets"])

        index = coordinator_of(cluster)
        cluster.kill_broker(index)
        killed = time.monotonic()
        write_to_all(producer, b"after")
        settled_ms = (group.read_until_all(b"after") - killed) * 1000
    print(json.dumps({**size, "settled_ms": settled_ms}))
    assert settled_ms <= allowed_ms(SETTLED_MS)


def test_a_large_group_of_the_new_protocol_settles_after_a_broker_died(
    cluster: FairleadCluster,
) -> None:
    asyncio.run(kill_coordinator_and_another(cluster))


async def kill_coordinator_and_another(cluster: FairleadCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    share = PARTITIONS // MEMBERS
    async with LightGroup(cluster.ports, GROUP, TOPIC, MEMBERS) as group:
        await group.until(
            lambda: (
                all(len(each.positions) == share for each in group.members)
                and group.held == list(range(PARTITIONS))
            ),
            "partitions without a member, or with two",
        )
        # Everybody has a connection to every leader, as in a group that has run for a while.
        group.seek(b"before")
        await asyncio.to_thread(write_to_all, producer, b"before")
        await group.until(lambda: len(group.found_at) == PARTITIONS, "nothing is delivered")
        held = [set(each.positions) for each in group.members]
        for is_coordinator in (True, False):
            tries: list[dict[str, float]] = []
            while not tries or (len(tries) < TRIES and tries[-1]["cpu_s"] > CLUSTER_CPU_S):
                index = await choose(cluster, is_coordinator=is_coordinator)
                figures = await kill_and_settle(
                    cluster, group, producer, index, is_coordinator=is_coordinator
                )
                told = {"is_coordinator": is_coordinator, "load": getloadavg(), **figures}
                print(json.dumps(told))
                tries.append(figures)
                assert figures["settled_ms"] <= allowed_ms(SETTLED_848_MS), figures
                # On a busy machine, too: what is not a wait for a processor shows in the first one.
                assert figures["first_ms"] <= SETTLED_848_MS, figures
                assert group.fenced == []
                now = [set(each.positions) for each in group.members]
                assert now == held, "nobody had to move"
                await start_again(cluster, group, producer, index)
            # More work is done while others have the processors: one death in three may show what
            # it costs by itself.
            assert tries[-1]["cpu_s"] <= CLUSTER_CPU_S, tries


async def choose(cluster: FairleadCluster, *, is_coordinator: bool) -> int:
    """Return who is to die: the group's coordinator, or another broker."""
    await asyncio.to_thread(
        wait_until_in_sync, cluster, partitions=50, topics=["__consumer_offsets"]
    )
    coordinator = find_coordinator(cluster.ports[0], GROUP, KeyType.GROUP)
    assert coordinator is not None
    return coordinator if is_coordinator else (coordinator + 1) % 3


async def start_again(
    cluster: FairleadCluster, group: LightGroup, producer: Producer, index: int
) -> None:
    """Bring all back to where it was before a death."""
    cluster.start_broker(index)
    await asyncio.to_thread(wait_until_in_sync, cluster, partitions=PARTITIONS, topics=[TOPIC])
    # A death costs what it moves: a third of the leaders, not the half that two had.
    await asyncio.to_thread(elect_preferred_leaders, cluster)
    await read_from_every_leader(group, producer, b"returned %d" % time.monotonic_ns())


async def read_from_every_leader(group: LightGroup, producer: Producer, value: bytes) -> None:
    """Everybody has a connection to every leader then, as in a group that has run for a while."""
    group.seek(value)
    await asyncio.to_thread(write_to_all, producer, value)
    await group.until(lambda: len(group.found_at) == PARTITIONS, "nothing is delivered")


def elect_preferred_leaders(cluster: FairleadCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    every = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    answers = admin.elect_leaders(ElectionType.PREFERRED, every).result(60)
    refused = {error.name() for error in answers.values() if error}
    assert refused <= {"ELECTION_NOT_NEEDED"}


async def kill_and_settle(
    cluster: FairleadCluster,
    group: LightGroup,
    producer: Producer,
    index: int,
    *,
    is_coordinator: bool,
) -> dict[str, float]:
    """Kill a broker; tell what happened until every partition has delivered a new record.

    Where the coordinator died, every member has besides been told by the next one that all is well.
    """
    survivors = [pid for pid in cluster.pids if pid != cluster.brokers[index].pid]
    value = b"after %d" % time.monotonic_ns()
    group.seek(value)
    before_s = read_cpu(survivors)
    brokers = [pid for pid in survivors if pid != cluster.controller.pid]
    stopwatch = Stopwatch(cluster.controller.pid, beside=brokers)
    cluster.kill_broker(index)
    killed = time.monotonic()
    writing = threading.Thread(target=write_to_all, args=(producer, value))
    writing.start()
    await group.until(lambda: bool(group.found_at), "partitions deliver nothing")
    first_ms = round(stopwatch.elapsed_s() * 1000)
    await group.until(lambda: len(group.found_at) == PARTITIONS, "partitions deliver nothing")
    if is_coordinator:
        await group.until(
            lambda: min(group.heartbeats.values()) > killed, "members without a coordinator"
        )
    settled_ms = round(stopwatch.elapsed_s() * 1000)
    cpu_s = round(read_cpu(survivors) - before_s, 2)
    await asyncio.to_thread(writing.join)
    left_out_s = round(stopwatch.left_out_s(), 2)
    return {
        "settled_ms": settled_ms,
        "first_ms": first_ms,
        "cpu_s": cpu_s,
        "left_out_s": left_out_s,
    }
