"""Java's consumer reads from the follower in its rack (KIP-392)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from replica_cluster import ReplicaCluster

from fairlead_bench.peers.java_tools import JavaTools

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.java


def test_the_console_consumer_reads_from_its_rack(tools: JavaTools, tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(500)]

    async def story() -> None:
        async with ReplicaCluster(
            tmp_path,
            racks={1: "a", 2: "b"},
            size=2,
            replica_selector_class="RackAwareReplicaSelector",
        ) as cluster:
            cluster.create("t")
            for value in values:
                end = cluster.append(1, "t", value)
            await cluster.until(lambda: cluster.partition(1, "t").high_watermark == end)
            port = cluster.members[1].server.listeners[0].port
            near = JavaTools(tools.distribution, f"127.0.0.1:{port}")
            options = ("--topic", "t", "--partition", "0", "--offset", "earliest")
            read = await asyncio.to_thread(
                near.run,
                "kafka-console-consumer",
                *options,
                *("--max-messages", str(len(values)), "--timeout-ms", "60000"),
                *("--command-property", "client.rack=b"),
            )
            assert read.encode().split() == values
            assert cluster.members[1].broker.metrics.preferred_read_replicas > 0
            assert cluster.members[2].broker.metrics.follower_reads > 0
            assert cluster.members[1].broker.metrics.traffic.total().bytes_out == 0

    asyncio.run(story())
