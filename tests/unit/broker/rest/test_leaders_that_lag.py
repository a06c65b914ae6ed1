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
from fairlead_model.ids import CONSUMER_OFFSETS, TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_wire.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fairlead_wire.message import Message

ID = TopicId(b"t" * 16)
HERE, LEADER = 1, 2
LED = PartitionRegistration(replicas=(LEADER,), isr=(LEADER,), leader=LEADER)
OFFSETS_ID = TopicId(b"o" * 16)
OFFSETS = (
    TopicChanged(TopicHeader(CONSUMER_OFFSETS, OFFSETS_ID, 1)),
    PartitionChanged(OFFSETS_ID, 0, LED),
)
RECORD = {"partition_id": 0, "value": {"type": "JSON", "data": 1}}
NAME_PARTITIONS = {ApiKey.LIST_OFFSETS, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT}


def look_up(client: RestClient) -> tuple[int, Any]:
    reply = client.get("/topics/t/partitions/0/offsets")
    return reply.status, reply.json


def read(client: RestClient) -> tuple[int, Any]:
    reply = client.get("/topics/t/partitions/0/records?timeout=20000&offset=latest&min_bytes=0")
    return reply.status, reply.json


def write(client: RestClient) -> tuple[int, Any]:
    reply: Reply = client.records("t", RECORD)
    return reply.json["error_code"], reply.json.get("offset")


def commit(client: RestClient) -> tuple[int, Any]:
    """The group's coordinator is the broker that leads the partition."""
    settings = {"name": "c", "format": "json", "auto.commit.enable": "false"}
    assert client.post("/consumers/g", settings).status == 200
    at = "/consumers/g/instances/c"
    partition = {"topic": "t", "partition": 0}
    assert client.post(f"{at}/assignments", {"partitions": [partition]}).status == 204
    reply = client.post(f"{at}/offsets", {"offsets": [partition | {"offset": 6, "metadata": ""}]})
    return reply.status, [each["offset"] for each in reply.json["offsets"]]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (look_up, (200, {"beginning_offset": 0, "end_offset": 0})),
        (read, (200, [])),
        (write, (200, 0)),
        (commit, (200, [7])),
    ],
    ids=["look up", "read", "write", "commit"],
)
def test_a_leader_that_has_not_heard_of_a_partition_is_asked_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[RestClient], tuple[int, Any]],
    expected: tuple[int, Any],
) -> None:
    answered = 0
    asked_before = Peers.ask

    async def counted(self: Peers, broker_id: int, request: Message, *given: Any) -> Any:
        nonlocal answered
        answer = await asked_before(self, broker_id, request, *given)
        answered += request.API_KEY in NAME_PARTITIONS
        return answer

    monkeypatch.setattr(Peers, "ask", counted)
    news = TopicChanged(TopicHeader("t", ID, 1)), PartitionChanged(ID, 0, LED)

    async def story() -> tuple[int, Any]:
        async with ReplicaCluster(tmp_path, size=2) as cluster:
            leader = cluster.members[LEADER]
            cluster.publish(*OFFSETS)
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
