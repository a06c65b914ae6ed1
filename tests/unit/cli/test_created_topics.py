"""`fairlead topic create` and `alter` end when every broker knows: the next command asks any."""

from __future__ import annotations

import asyncio
import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError
from replica_cluster import DEADLINE_S, ReplicaCluster
from waiting import wait_until

from fairlead_cli.client import access, wire_call
from fairlead_cli.client.connection import build_admin, require_topic
from fairlead_cli.errors import CliError
from fairlead_cli.topic import create
from fairlead_model.cluster import ClusterDelta, PartitionChanged, TopicChanged, TopicHeader
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

ID = TopicId(b"t" * 16)
LATE = 2


def broker_asked_by(admin: AdminClient) -> int:
    """Return the broker that librdkafka asks: it chooses one when it knows all, and stays with it.

    The broker that it begins with has no id for it.
    """

    def answering() -> str:
        found = admin.list_topics(timeout=DEADLINE_S).orig_broker_id
        return "" if found < 0 else str(found)

    return int(wait_until(answering, "librdkafka stays with the broker it began with"))


def address_of(cluster: ReplicaCluster, broker_id: int) -> tuple[str, int]:
    listeners = cluster.members[broker_id].server.listeners
    return next((each.host, each.port) for each in listeners if not each.is_internal)


@pytest.mark.parametrize("partitions", [1, 2], ids=["created", "grown"])
def test_every_broker_has_heard_of_a_topic_and_of_its_new_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(create, "VISIBLE_TIMEOUT_S", DEADLINE_S)
    monkeypatch.setattr(create, "BROKER_PATIENCE_S", DEADLINE_S)
    told: list[tuple[tuple[str, int], int]] = []
    call_broker = wire_call.call_broker

    def noted(host: str, port: int, *given: Any, **options: Any) -> Any:
        reply = call_broker(host, port, *given, **options)
        told.append(((host, port), len(reply.topics[0].partitions)))
        return reply

    monkeypatch.setattr(wire_call, "call_broker", noted)
    record = PartitionRegistration(replicas=(1,), isr=(1,), leader=1)

    def news(count: int) -> tuple[Any, ...]:
        return TopicChanged(TopicHeader("t", ID, count)), PartitionChanged(ID, count - 1, record)

    async def story() -> int:
        async with ReplicaCluster(tmp_path) as cluster:
            for before in range(1, partitions):
                cluster.publish(*news(before))
            host, port = address_of(cluster, 1)
            admin = build_admin(f"{host}:{port}")
            # If librdkafka asked this one, the command would ask no other before it has heard.
            late_id = LATE if await asyncio.to_thread(broker_asked_by, admin) != LATE else LATE + 1
            late = cluster.members[late_id]
            cluster.publish(*news(partitions), without=late)
            waiting = asyncio.create_task(
                asyncio.to_thread(create.wait_until_visible, admin, "t", at_least=partitions)
            )
            asked = address_of(cluster, late_id)
            await cluster.until(lambda: any(each == asked for each, _ in told) or waiting.done())
            assert not waiting.done()
            late.broker.publish(ClusterDelta(news(partitions)), cluster.image)
            return await waiting

    async def in_time() -> int:
        async with asyncio.timeout(2 * DEADLINE_S):
            return await story()

    assert asyncio.run(in_time()) == partitions
    assert {place for place, count in told if count == partitions} == {place for place, _ in told}
    assert len({place for place, _ in told}) == 3


def test_who_logs_in_by_a_token_goes_by_the_broker_that_librdkafka_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command itself cannot log in to each broker."""
    own = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    monkeypatch.setattr(access, "_settings", own)
    monkeypatch.setattr(wire_call, "call_broker", None)
    led = SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=0)})
    brokers = {0: SimpleNamespace(host="localhost", port=1)}
    metadata = SimpleNamespace(brokers=brokers, topics={"t": led})
    admin: Any = SimpleNamespace(list_topics=lambda **_: metadata)
    assert create.wait_until_visible(admin, "t") == 1


def test_a_topic_that_the_second_answer_lists_does_exist() -> None:
    """The broker that is asked first may not have heard of it yet."""
    unknown = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    there = SimpleNamespace(error=None)
    answers = [{"t": unknown}, {"t": there, "other": there}, {"t": unknown}, {"other": there}]
    asked: list[str | None] = []

    def list_topics(*, topic: str | None, timeout: float) -> Any:
        asked.append(topic)
        return SimpleNamespace(topics=answers.pop(0))

    client: Any = SimpleNamespace(list_topics=list_topics)
    assert require_topic(client, "t") is there
    with pytest.raises(CliError, match="topic 't' does not exist"):
        require_topic(client, "t")
    assert asked == ["t", None, "t", None]


def test_a_broker_that_hangs_is_named_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(create, "VISIBLE_TIMEOUT_S", 60.0)
    led = {"t": SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=0)})}
    began_s = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as hung:
        host, port = hung.getsockname()
        metadata = SimpleNamespace(brokers={2: SimpleNamespace(host=host, port=port)}, topics=led)
        admin: Any = SimpleNamespace(list_topics=lambda **_: metadata)
        assert create.wait_until_visible(admin, "t") == 1
    assert time.monotonic() - began_s < 50
    assert capsys.readouterr().err == "Topic t has not reached every broker yet: 2.\n"


def test_a_broker_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(create, "VISIBLE_TIMEOUT_S", DEADLINE_S)
    monkeypatch.setattr(create, "BROKER_PATIENCE_S", DEADLINE_S)

    async def story() -> int:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t")
            await cluster.members[LATE].server.stop(grace_s=0)
            host, port = address_of(cluster, 1)
            admin = build_admin(f"{host}:{port}")
            return await asyncio.to_thread(create.wait_until_visible, admin, "t")

    assert asyncio.run(story()) == 1
    assert capsys.readouterr().err == f"Topic t has not reached every broker yet: {LATE}.\n"
