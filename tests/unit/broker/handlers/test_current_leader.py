"""Who leads is told with the refusal, and where that is (KIP-951)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlead_model.cluster import BrokerChanged
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fairlead_wire.records import Record, encode_batch

LED_BY_TWO = (2, 0, 2, "broker-2", 9094, "b")
"""Id and epoch of the leader; id, host, port and rack of the broker that is it."""
BATCH = encode_batch([Record(0, 1, None, b"a")])
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def followed(stage: Any) -> Any:
    """Broker 2, in rack b, leads; 1 follows it."""
    stage.neighbour(2, rack="b")
    stage.topic("t", leader=2, replicas=(2, 1))
    return stage


def told(slot: Any, response: Any) -> tuple[Any, ...]:
    """The error and, where it is told, who leads and where."""
    leader, endpoints = slot.current_leader, response.node_endpoints
    if leader is None:
        assert not endpoints
        return (slot.error_code,)
    (node,) = endpoints
    where = (node.node_id, node.host, node.port, node.rack)
    return (slot.error_code, leader.leader_id, leader.leader_epoch, *where)


def fetch(stage: Any, version: int, *, epoch: int = -1, index: int = 0) -> tuple[Any, ...]:
    asked = FetchPartition(index, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
    topic = FetchTopic("t", partitions=[asked])
    if version >= 13:
        topic.topic_id = stage.image.names["t"]
    response = stage.ask(FetchRequest(max_wait_ms=60_000, topics=[topic]), version)
    again, _ = type(response).decode(encoded(response, version), 0, version)
    assert told(again.responses[0].partitions[0], again) == told(
        response.responses[0].partitions[0], response
    )
    return told(response.responses[0].partitions[0], response)


def produce(stage: Any, version: int, *indexes: int) -> tuple[Any, ...]:
    topic = TopicProduceData(
        "t" if version < 13 else "",
        stage.image.names["t"] if version >= 13 else bytes(16),
        [PartitionProduceData(index, bytearray(BATCH)) for index in indexes or (0,)],
    )
    response = stage.ask(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), version)
    again, _ = type(response).decode(encoded(response, version), 0, version)
    assert again.responses[0].topic_id == topic.topic_id
    return told(again.responses[0].partition_responses[-1], again)


def encoded(response: Any, version: int) -> memoryview:
    return memoryview(b"".join(bytes(each) for each in response.encode(version)))


@pytest.mark.parametrize("version", range(4, 18))
def test_a_consumer_is_told(followed: Any, version: int) -> None:
    expected = (NOT_LEADER, *LED_BY_TWO) if version >= 16 else (NOT_LEADER,)
    assert fetch(followed, version) == expected


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("indexes", [(0,), (0, 0)], ids=["one batch", "two batches"])
def test_a_producer_is_told(followed: Any, version: int, indexes: tuple[int, ...]) -> None:
    expected = (NOT_LEADER, *LED_BY_TWO) if version >= 10 else (NOT_LEADER,)
    assert produce(followed, version, *indexes) == expected


def test_who_waits_for_what_another_one_leads_by_then_is_told(followed: Any) -> None:
    followed.topic("t", replicas=(1, 2))
    followed.change("t", isr=(1, 2))
    topic = TopicProduceData("t", partition_data=[PartitionProduceData(0, bytearray(BATCH))])
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
    waiting = followed.park(request, 10)
    followed.change("t", leader=2)
    epoch = followed.image.partition("t", 0).leader_epoch

    async def answer() -> Any:
        return await waiting

    response = followed.run(answer())
    slot = response.responses[0].partition_responses[0]
    assert told(slot, response) == (NOT_LEADER, 2, epoch, *LED_BY_TWO[2:])


def test_who_has_an_older_epoch_is_told_the_new_one(stage: Any) -> None:
    stage.topic("t", replicas=(1, 2))
    stage.change("t", leader=-1)
    stage.change("t", leader=1)
    epoch = stage.image.partition("t", 0).leader_epoch
    mine = stage.image.brokers[1].endpoint("CLIENT")
    assert fetch(stage, 16, epoch=epoch - 1) == (
        ErrorCode.FENCED_LEADER_EPOCH,
        *(1, epoch, 1, mine.host, mine.port, stage.image.brokers[1].rack),
    )


def test_nothing_is_told_that_helps_nobody(followed: Any) -> None:
    refused = (NOT_LEADER,)
    unreachable = followed.image.brokers[2].endpoints[1:]
    followed.publish(BrokerChanged(replace(followed.image.brokers[2], endpoints=unreachable)))
    assert (fetch(followed, 16), produce(followed, 10)) == (refused, refused)
    followed.neighbour(2, fenced=True)
    assert (fetch(followed, 16), produce(followed, 10)) == (refused, refused)
    followed.neighbour(2)
    followed.change("t", leader=-1)
    assert len(fetch(followed, 16)) == len(produce(followed, 10)) == 1
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(followed, 16, index=7) == produce(followed, 10, 7) == (unknown,)


def test_a_leader_that_may_have_been_replaced_does_not_name_itself(stage: Any) -> None:
    stage.topic("t")
    stage.broker.controller.has_session = False
    topic = FetchTopic("t", stage.image.names["t"], [FetchPartition(0, fetch_offset=7)])
    response = stage.ask(FetchRequest(max_wait_ms=60_000, topics=[topic]), 16)
    assert told(response.responses[0].partitions[0], response) == (NOT_LEADER,)


def test_a_topic_that_was_made_again_is_not_written_by_its_older_id(stage: Any) -> None:
    older = stage.topic("t", topic_id=b"old".ljust(16))
    stage.delete("t")
    stage.topic("t", topic_id=b"new".ljust(16))
    topic = TopicProduceData("", older, [PartitionProduceData(0, bytearray(BATCH))])
    response = stage.ask(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 13)
    slot = response.responses[0].partition_responses[0]
    assert (slot.error_code, slot.base_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert response.responses[0].topic_id == older
    assert stage.partition("t").log_end_offset == 0
    assert produce(stage, 13) == (ErrorCode.NONE,)
    assert stage.partition("t").log_end_offset == 1
