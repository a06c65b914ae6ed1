"""Requests that read offsets are handled once those before them on a connection are answered."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker, batch

from fairlead_broker.api_registry import HANDLERS, Handler
from fairlead_broker.handlers.records import list_offsets as list_offsets_handler
from fairlead_broker.handlers.records import offset_for_leader_epoch as end_of_epoch_handler
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Connect = Callable[..., FrameClient]
LATEST = -1
LEADER_EPOCH = 3
READERS: dict[int, Handler] = {
    ApiKey.LIST_OFFSETS: HANDLERS[ApiKey.LIST_OFFSETS],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: HANDLERS[ApiKey.OFFSET_FOR_LEADER_EPOCH],
}
assert {each.call.__module__ for each in READERS.values()} == {
    list_offsets_handler.__name__,
    end_of_epoch_handler.__name__,
}


@pytest.fixture(autouse=True)
def served(live: LiveBroker) -> Iterator[None]:
    """Have the broker serve what it does not without a cluster."""
    HANDLERS.update(READERS)
    yield
    for api_key in READERS:
        del HANDLERS[api_key]


def produce() -> ProduceRequest:
    data = [PartitionProduceData(0, batch(b"v"))]
    return ProduceRequest(None, 1, 5000, [TopicProduceData("t", partition_data=data)])


def fetch() -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic("t", partitions=[partition])]
    )


def list_offsets(partitions_count: int = 1) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(i, timestamp=LATEST) for i in range(partitions_count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", partitions)])


def end_of_epoch() -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(0, current_leader_epoch=-1, leader_epoch=LEADER_EPOCH)
    return OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[OffsetForLeaderTopic("t", [partition])]
    )


def end_listed(response: Any) -> int:
    end: int = response.topics[0].partitions[0].offset
    return end


def end_told(response: Any) -> int:
    end: int = response.topics[0].partitions[0].end_offset
    return end


@pytest.mark.parametrize(
    ("api_key", "version", "request_of", "end_of"),
    [
        (ApiKey.LIST_OFFSETS, 5, list_offsets, end_listed),
        (ApiKey.LIST_OFFSETS, 5, lambda: list_offsets(9_000), end_listed),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, end_of_epoch, end_told),
    ],
)
def test_an_offset_told_after_records_is_not_older_than_they(
    live: LiveBroker,
    connect: Connect,
    api_key: int,
    version: int,
    request_of: Callable[[], Any],
    end_of: Callable[[Any], int],
) -> None:
    live.add_partition("t")
    reader, writer = connect(), connect()
    reader.send(fetch(), 12)
    reader.send(request_of(), version)
    # This one changes nothing either, but is not reached before the other is answered.
    reader.send(ApiVersionsRequest("a", "1"), 3)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
    live.eventually(lambda: any(each._waiting_frame for each in live.server.connections))
    writer.call(produce(), 7)
    correlation_id, fetched = reader.receive(ApiKey.FETCH, 12)
    assert (correlation_id, fetched.responses[0].partitions[0].high_watermark) == (1, 1)
    correlation_id, told = reader.receive(api_key, version)
    assert (correlation_id, end_of(told)) == (2, 1)
    assert reader.receive(ApiKey.API_VERSIONS, 3)[0] == 3
    live.eventually(lambda: live.server.memory.used_bytes == 0)
    assert end_listed(reader.call(list_offsets(), 5)) == 1


def test_what_waits_for_its_turn_goes_with_its_connection(
    live: LiveBroker, connect: Connect
) -> None:
    live.add_partition("t")
    reader = connect()
    reader.send(fetch(), 12)
    reader.send(list_offsets(9_000), 5)
    live.eventually(lambda: any(each._waiting_frame for each in live.server.connections))
    assert len(live.broker.fetch_purgatory) == 1
    assert live.run(lambda: live.server.memory.used_bytes) > 0
    reader.socket.close()
    live.pass_seconds(1)
    live.eventually(lambda: not live.server.connections)
    assert live.run(lambda: live.server.memory.used_bytes) == 0
    assert len(live.broker.fetch_purgatory) == 0


def test_several_of_both_are_answered_in_order(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    reader, writer = connect(), connect()
    for _ in range(20):
        reader.send(fetch(), 12)
        reader.send(list_offsets(), 5)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
    writer.call(produce(), 7)
    for number in range(20):
        assert reader.receive(ApiKey.FETCH, 12)[0] == 2 * number + 1
        correlation_id, listed = reader.receive(ApiKey.LIST_OFFSETS, 5)
        assert (correlation_id, end_listed(listed)) == (2 * number + 2, 1)
