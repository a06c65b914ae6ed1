"""Consumers that say in which rack they are: sent to followers, and answered by them (KIP-392)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from fairlead_broker.replication.follower_state import FetchedPartition
from fairlead_model.cluster import BrokerChanged
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from fairlead_wire.records import Record, decode_batch, encode_batch, iter_batches

BY_RACK = {"broker.rack": "a", "replica.selector.class": "RackAwareReplicaSelector"}
LAST = Record(2, 1, None, b"z")
by_rack = pytest.mark.parametrize("stage", [BY_RACK], indirect=True)


def request(
    offset: int, *, rack: str, epoch: int = -1, session: tuple[int, int] = (0, -1), **more: Any
) -> FetchRequest:
    asked = FetchPartition(
        0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    return FetchRequest(
        max_wait_ms=more.pop("max_wait_ms", 0),
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic("t", partitions=[asked])] if offset >= 0 else [],
        rack_id=rack,
        **more,
    )


def only(response: FetchResponse) -> PartitionData:
    ((data,),) = (topic.partitions for topic in response.responses)
    return data


def fetch(stage: Any, offset: int, version: int = 12, **more: Any) -> PartitionData:
    return only(stage.ask(request(offset, **more), version))


def told(data: PartitionData) -> tuple[int, int, int]:
    """Error, broker to ask instead, bytes of records."""
    return data.error_code, data.preferred_read_replica, len(data.records or b"")


@pytest.fixture
def led(stage: Any) -> Any:
    """Broker 1, in rack a, leads; 2 and 3 in rack b follow, 3 of them is behind."""
    for broker_id in (2, 3):
        stage.neighbour(broker_id, rack="b")
    stage.topic("t", replicas=(1, 2, 3))
    stage.change("t", isr=(1, 2, 3))
    for value in (b"x", b"y", b"z"):
        stage.append("t", value)
    note_fetch(stage, 2, 3)
    note_fetch(stage, 3, 2)
    assert stage.partition("t").high_watermark == 2
    return stage


def note_fetch(stage: Any, broker_id: int, offset: int) -> None:
    async def act() -> None:
        now_ms = stage.clock.monotonic_ms()
        stage.partition("t").record_fetch(broker_id, broker_id, offset, now_ms)

    stage.run(act())


@by_rack
@pytest.mark.parametrize("version", [11, 12, 13])
def test_a_consumer_elsewhere_is_sent_to_the_follower_in_its_rack(led: Any, version: int) -> None:
    asked = request(0, rack="b", max_wait_ms=60_000)
    if version >= 13:
        asked.topics[0].topic_id = led.image.names["t"]
    data = only(led.ask(asked, version))
    assert told(data) == (0, 2, 0), "at once, and to the one that has most"
    assert data.high_watermark == 2
    assert led.broker.metrics.preferred_read_replicas == 1


@by_rack
@pytest.mark.parametrize("rack", ["", "a", "c"])
def test_others_are_answered_by_the_leader(led: Any, rack: str) -> None:
    code, preferred, size = told(fetch(led, 0, rack=rack))
    assert (code, preferred) == (0, -1)
    assert size


def test_nobody_is_sent_anywhere_unless_brokers_are_told_to(led: Any) -> None:
    assert told(fetch(led, 0, rack="b"))[:2] == (0, -1)


@by_rack
def test_only_who_is_in_sync_in_service_and_has_enough_is_preferred(led: Any) -> None:
    assert fetch(led, 2, rack="b").preferred_read_replica == 2
    led.neighbour(2, rack="b", fenced=True)
    assert fetch(led, 2, rack="b").preferred_read_replica == 3
    note_fetch(led, 3, 3)
    led.change("t", isr=(1, 2))
    assert fetch(led, 2, rack="b").preferred_read_replica == -1
    led.neighbour(2, rack="b")
    assert fetch(led, 2, rack="b").preferred_read_replica == 2
    unreachable = led.image.brokers[2].endpoints[1:]
    led.publish(BrokerChanged(replace(led.image.brokers[2], endpoints=unreachable)))
    assert fetch(led, 2, rack="b").preferred_read_replica == -1


@by_rack
def test_what_is_out_of_range_is_the_leaders_to_say(led: Any) -> None:
    assert told(fetch(led, 9, rack="b")) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, 0)


@by_rack
def test_a_session_says_every_time_who_is_preferred(led: Any) -> None:
    """Nothing else is new in the second answer, and a consumer that heard nothing would wait."""
    first = led.ask(request(0, rack="b", session=(0, 0)), 12)
    assert told(only(first)) == (0, 2, 0)
    again = led.ask(request(-1, rack="b", session=(first.session_id, 1)), 12)
    assert told(only(again)) == (0, 2, 0)


@pytest.fixture
def followed(stage: Any) -> Any:
    """Broker 2 leads; this one has three records, of which it knows two to be committed."""
    stage.neighbour(2)
    stage.topic("t", leader=2, replicas=(2, 1))
    stage.change("t", isr=(2, 1))
    take(stage, b"x", b"y", b"z", high_watermark=2)
    return stage


def take(stage: Any, *values: bytes, high_watermark: int) -> None:
    partition = stage.partition("t")
    position = partition.next_fetch()
    first = position.fetch_offset
    records = b""
    if values:
        batches = [Record(first + at, 1, None, value) for at, value in enumerate(values)]
        records = b"".join(bytes(encode_batch([each])) for each in batches)
    reply = FetchedPartition(
        position, high_watermark=high_watermark, log_start_offset=0, records=records
    )

    async def act() -> None:
        partition.take(reply, now_ms=1)

    stage.run(act())


def values(data: PartitionData) -> list[bytes | None]:
    sent = bytes(cast("bytes", data.records or b""))
    return [each.value for at, _ in iter_batches(sent) for each in decode_batch(sent, at)]


def test_a_follower_answers_up_to_its_own_high_watermark(followed: Any) -> None:
    data = fetch(followed, 0, rack="b")
    assert (data.error_code, data.high_watermark, values(data)) == (0, 2, [b"x", b"y"])
    assert told(fetch(followed, 2, rack="b")) == (0, -1, 0), "it is there, and not committed"
    assert followed.broker.metrics.follower_reads == 1


def test_without_a_rack_a_follower_answers_nobody(followed: Any) -> None:
    assert told(fetch(followed, 0, rack=""))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_at_the_end_is_answered_when_the_high_watermark_comes(followed: Any) -> None:
    waiting = followed.park(request(2, rack="b", max_wait_ms=60_000), 12)
    take(followed, high_watermark=3)

    async def answer() -> Any:
        return await waiting

    data = only(followed.run(answer()))
    assert (data.high_watermark, len(data.records or b"")) == (3, len(encode_batch([LAST])))


def test_what_only_the_leader_has_resets_nobody(followed: Any) -> None:
    not_there = fetch(followed, 4, rack="b")
    assert told(not_there)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not_there.high_watermark == -1, "librdkafka takes it for an offset that is not here yet"
    take(followed, high_watermark=5)
    assert told(fetch(followed, 5, rack="b"))[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert told(fetch(followed, 6, rack="b"))[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_checks_the_epoch_and_that_it_is_in_sync(followed: Any) -> None:
    epoch = followed.partition("t").leader_epoch
    assert told(fetch(followed, 0, rack="b", epoch=epoch))[0] == 0
    newer = fetch(followed, 0, rack="b", epoch=epoch + 1)
    assert told(newer)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    followed.change("t", isr=(2,))
    assert told(fetch(followed, 0, rack="b"))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    followed.change("t", isr=(2, 1))
    waiting = followed.park(request(2, rack="b", max_wait_ms=60_000), 12)
    followed.change("t", leader=-1)

    async def answer() -> Any:
        return await waiting

    assert only(followed.run(answer())).error_code
    assert told(fetch(followed, 0, rack="b", epoch=epoch))[0] != 0
