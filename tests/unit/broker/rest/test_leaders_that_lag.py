"""HTTP requests for a new partition that this broker knows, and its leader does not know yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from replica_cluster import DEADLINE_S, SECRET, ReplicaCluster
from rest_client import Reply, RestClient

from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.rest.peers import Peers
from fairlead_broker.rest.server import RestServer
from fairlead_broker.settings import RestAddress
from fairlead_model.cluster import ClusterDelta, PartitionChanged, TopicChanged, TopicHeader
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ID = TopicId(b"t" * 16)
HERE, LEADER = 1, 2
RECORD = {"partition_id": 0, "value": {"type": "JSON", "data": 1}}


def look_up(client: RestClient) -> tuple[int, Any]:
    reply = client.get("/topics/t/partitions/0/offsets")
    return reply.status, reply.json


def read(client: RestClient) -> tuple[int, Any]:
    reply = client.get("/topics/t/partitions/0/records?timeout=20000&offset=latest&min_bytes=0")
    return reply.status, reply.json


def write(client: RestClient) -> tuple[int, Any]:
    reply: Reply = client.records("t", RECORD)
    return reply.json["error_code"], reply.json.get("offset")


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (look_up, (200, {"beginning_offset": 0, "end_offset": 0})),
        (read, (200, [])),
        (write, (200, 0)),
    ],
    ids=["look up", "read", "write"],
)
def test_a_leader_that_has_not_heard_of_a_partition_is_asked_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[RestClient], tuple[int, Any]],
    expected: tuple[int, Any],
) -> None:
    answered = 0
    asked_before = Peers.ask

    async def counted(self: Peers, *given: Any) -> Any:
        nonlocal answered
        answer = await asked_before(self, *given)
        answered += 1
        return answer

    monkeypatch.setattr(Peers, "ask", counted)
    record = PartitionRegistration(replicas=(LEADER,), isr=(LEADER,), leader=LEADER)
    news = TopicChanged(TopicHeader("t", ID, 1)), PartitionChanged(ID, 0, record)

    async def story() -> tuple[int, Any]:
        async with ReplicaCluster(tmp_path, size=2) as cluster:
            leader = cluster.members[LEADER]
            cluster.publish(*news, without=leader)
            address = RestAddress("127.0.0.1", 0, "127.0.0.1", 0, (), (), 1_000)
            server = RestServer(cluster.members[HERE].broker, address, SECRET, PeerLog())
            host, port = server.bind()
            await server.start()
            try:
                client = RestClient(f"http://{host}:{port}")
                asking = asyncio.create_task(asyncio.to_thread(ask, client))
                await cluster.until(lambda: answered > 0 or asking.done())
                leader.broker.publish(ClusterDelta(news), cluster.image)
                return await asking
            finally:
                await server.stop(grace_s=1)

    async def in_time() -> tuple[int, Any]:
        async with asyncio.timeout(2 * DEADLINE_S):
            return await story()

    assert asyncio.run(in_time()) == expected
