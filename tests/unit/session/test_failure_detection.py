"""From the death of a broker to the delta that moves its leaders, over real sockets."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from fairlead_model.broker import Endpoint


async def listener() -> tuple[asyncio.Server, tuple[Endpoint, ...]]:
    """The port that a broker listens on, and the address it registers."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    return server, (Endpoint("INTERNAL", "127.0.0.1", port, is_internal=True),)


class Cluster:
    """Three brokers that listen; each is a leader."""

    def __init__(self, stage: Any, until: Any) -> None:
        self.stage = stage
        self.until = until
        self.nodes: list[Any] = []
        self.servers: list[asyncio.Server] = []

    async def start(self) -> None:
        await self.stage.start_controller()
        for broker_id in range(3):
            server, endpoints = await listener()
            self.servers.append(server)
            self.nodes.append(await self.stage.start_node(broker_id, endpoints=endpoints))
        topic = {
            "name": "t",
            "partitions": 9,
            "replication_factor": 3,
            "assignments": {},
            "configs": {"min.insync.replicas": "2"},
        }
        body = {
            "topics": [topic],
            "validate_only": False,
            "default_partitions": 1,
            "default_replication_factor": 1,
        }
        reply = await self.nodes[0].session.call("create_topics", body, timeout_ms=5000)
        assert reply["topics"][0]["error_code"] == 0

    async def end_session(self, broker_id: int) -> None:
        """What the kernel does with a process's connection: it is cut, nobody says goodbye."""
        for task in self.nodes[broker_id].session._tasks:
            task.cancel()
        self.stage.server.sessions._sessions[broker_id].abort()

    async def close_port(self, broker_id: int) -> None:
        self.servers[broker_id].close()
        await self.servers[broker_id].wait_closed()

    async def fenced_after(self, broker_id: int, watcher: int) -> float:
        """Seconds until another broker has heard; all leaders have moved by then."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        image = lambda: self.nodes[watcher].image  # noqa: E731
        await self.until(lambda: image().brokers[broker_id].fenced)
        took = loop.time() - begun
        for partition in image().topic("t").partitions:
            assert partition.leader not in {-1, broker_id}
            assert broker_id not in partition.isr
            assert len(partition.isr) == 2
        return took

    async def get(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self.stage.server.http_port}{path}"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return response.status, json.loads(await response.text()) if response.ok else None

    async def close(self) -> None:
        for server in self.servers:
            server.close()


def scene(play: Any, wait_until: Any, story: Any) -> None:
    async def whole(stage: Any) -> None:
        cluster = Cluster(stage, wait_until)
        await cluster.start()
        try:
            await story(cluster)
        finally:
            await cluster.close()

    play(whole)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_broker_is_fenced_long_before_its_grace_is_over(play, wait_until, victim) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.close_port(victim)
        await cluster.end_session(victim)
        assert await cluster.fenced_after(victim, watcher=1) < 0.09

    scene(play, wait_until, story)


def test_a_process_that_closes_its_port_a_moment_later_is_found_by_the_next_probe(
    play, wait_until
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.end_session(2)
        await asyncio.sleep(0.02)
        await cluster.close_port(2)
        await cluster.fenced_after(2, watcher=0)
        decisions = (await cluster.get("/explain"))[1]["decisions"]
        assert any("refused a connection" in each["what"] for each in decisions)

    scene(play, wait_until, story)


def test_a_broker_that_still_listens_has_the_grace(play, wait_until) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.end_session(2)
        assert await cluster.fenced_after(2, watcher=0) >= 0.08
        decisions = (await cluster.get("/explain"))[1]["decisions"]
        assert any("did not come back in time" in each["what"] for each in decisions)

    scene(play, wait_until, story)


def test_status_and_explanations_show_what_a_death_did(play, wait_until) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.close_port(2)
        await cluster.end_session(2)
        await cluster.fenced_after(2, watcher=0)
        _, status = await cluster.get("/status")
        assert status["partitions"] == {
            "partitions": 9,
            "underReplicated": 9,
            "underMinIsr": 0,
            "offline": 0,
            "lossPossible": 0,
            "misplacedLeaders": 3,
        }
        leaders = {broker["id"]: broker["leaders"] for broker in status["brokers"]}
        assert leaders[2] == 0
        assert sum(leaders.values()) == 9
        _, topic = await cluster.get("/status/topics/t")
        moved = [each for each in topic["partitionList"] if each["replicas"][0] == 2]
        assert len(moved) == 3
        _, why = await cluster.get(f"/explain/t/{moved[0]['partition']}")
        assert why["why"] == "first electable replica of the assignment that is in sync"
        assert [each["state"] for each in why["replicas"]] == ["fenced", "live", "live"]
        assert "broker 2 is fenced" in why["history"][-1]["what"]
        for path in ("/explain/t/99", "/explain/unknown/0", "/status/topics/unknown"):
            assert (await cluster.get(path))[0] == 404

    scene(play, wait_until, story)


def test_leaders_are_elected_by_hand_and_proposed_over_the_session(play, wait_until) -> None:
    async def story(cluster: Cluster) -> None:
        session = cluster.nodes[0].session
        topic = session.image.topic("t")
        index = next(i for i, each in enumerate(topic.partitions) if each.leader == 0)
        partition = topic.partitions[index]
        proposal = {
            "topic_id": topic.topic_id,
            "index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "isr": [[0, session.broker_epoch]],
        }
        body = {"broker_epoch": session.broker_epoch, "partitions": [proposal]}
        answer = await session.call("alter_partition", body, timeout_ms=5000)
        assert answer["partitions"][0]["isr"] == [0]
        # The delta has come before the reply.
        changed = session.image.topic("t").partitions[index]
        assert (changed.isr, set(changed.elr)) == ((0,), {1, 2})
        wanted = [{"topic": "t", "index": index}]
        body = {"partitions": wanted, "election_type": 0}
        elected = await session.call("elect_leaders", body, timeout_ms=5000)
        assert elected["partitions"][0]["error_code"] == 84

    scene(play, wait_until, story)
