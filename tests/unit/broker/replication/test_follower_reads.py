"""Consumers that read from the follower in their rack, over real sockets (KIP-392)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from replica_cluster import ReplicaCluster

if TYPE_CHECKING:
    from pathlib import Path

SELECTOR: dict[str, Any] = {"replica_selector_class": "RackAwareReplicaSelector"}
FOR_EVER_MS = "3600000"
"""Longer than a test: an idle follower hears of nothing by its own time-out."""


def test_followers_that_are_read_hear_of_the_high_watermark_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        settings: dict[str, Any] = {**SELECTOR, "replica_fetch_wait_max_ms": FOR_EVER_MS}
        async with ReplicaCluster(tmp_path, **settings) as cluster:
            cluster.create("t")
            leader, follower = cluster.partition(1, "t"), cluster.partition(2, "t")
            leader.hasten_followers(0)
            end = cluster.append(1, "t", b"x")
            await cluster.until(lambda: follower.high_watermark == end)
            leader.tick(3_600_000, 30_000)
            assert not leader.hastens_followers, "nobody was sent there for long"

    asyncio.run(story())


def test_confluent_reads_from_the_follower_in_its_rack_and_goes_on_at_the_leader(
    tmp_path: Path,
) -> None:
    count = 200

    async def story() -> None:
        racks = {1: "a", 2: "b", 3: "c"}
        async with ReplicaCluster(tmp_path, racks=racks, **SELECTOR) as cluster:
            cluster.create("t")
            listener = cluster.members[1].server.listeners[0]
            consumer = Consumer(
                {
                    "bootstrap.servers": f"127.0.0.1:{listener.port}",
                    "group.id": "g",
                    "client.rack": "b",
                    "fetch.wait.max.ms": 100,
                    "metadata.max.age.ms": 60_000,
                    "enable.auto.commit": False,
                }
            )
            consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
            seen: list[bytes] = []

            async def read_until(length: int) -> None:
                async with asyncio.timeout(60):
                    while len(seen) < length:
                        for message in await asyncio.to_thread(consumer.consume, 100, 0.1):
                            assert message.error() is None, message.error()
                            seen.append(message.value())

            def reads_at(broker_id: int) -> int:
                return cluster.members[broker_id].broker.metrics.follower_reads

            values = [b"%d" % number for number in range(3 * count)]
            try:
                for value in values[:count]:
                    cluster.append(1, "t", value)
                await read_until(count)
                assert reads_at(2) > 0
                assert reads_at(3) == 0
                # The follower leaves the in-sync replicas: its consumer goes on at the leader.
                cluster.fence(2)
                cluster.change("t", isr=(1, 3))
                before = reads_at(2)
                for value in values[count : 2 * count]:
                    cluster.append(1, "t", value)
                await read_until(2 * count)
                assert reads_at(2) == before
                # Another broker leads.
                cluster.change("t", leader=3)
                await cluster.until(lambda: cluster.partition(3, "t").is_leader)
                for value in values[2 * count :]:
                    cluster.append(3, "t", value)
                await read_until(3 * count)
            finally:
                await asyncio.to_thread(consumer.close)
            assert seen == values, "none lost, none twice, in order"

    asyncio.run(story())
