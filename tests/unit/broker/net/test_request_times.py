"""How long requests took, as connections note it: together, one by one, and parked."""

import time
from collections.abc import Callable
from typing import Any

from live_broker import FrameClient, LiveBroker, batch

from fairlead_broker.measures.durations import RequestTimes
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Connect = Callable[..., FrameClient]
PRODUCE, FETCH, API_VERSIONS = 0, 1, 18


def produce(*, acks: int = 1) -> Any:
    data = [PartitionProduceData(0, batch(b"value"))]
    return ProduceRequest(None, acks, 5000, [TopicProduceData("t", partition_data=data)])


def fetch(offset: int, *, max_wait_ms: int) -> Any:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic("t", partitions=[partition])]
    )


def times_of(live: LiveBroker, api_key: int) -> RequestTimes:
    return live.broker.metrics.client_times[api_key]


def wait_for_count(live: LiveBroker, api_key: int, count: int) -> RequestTimes:
    """The reply leaves before its time is noted, so a client may be here earlier."""
    deadline = time.monotonic() + 10
    while live.run(lambda: times_of(live, api_key).count) < count:
        assert time.monotonic() < deadline
    return times_of(live, api_key)


def test_requests_of_one_read_are_counted_by_api(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    frames = b"".join(client.encode(produce(), 7) for _ in range(3))
    frames += client.encode(ApiVersionsRequest(), 0)
    frames += client.encode(produce(), 7)
    client.socket.sendall(frames)
    for api_key, version in ((0, 7), (0, 7), (0, 7), (18, 0), (0, 7)):
        client.receive(api_key, version)
    times = wait_for_count(live, PRODUCE, 4)
    assert wait_for_count(live, API_VERSIONS, 1).local_ns > 0
    assert 0 < times.local_ns <= times.total_ns
    assert times.remote_ns == 0


def test_a_produce_without_an_answer_counts(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    client.socket.sendall(client.encode(produce(acks=0), 7))
    assert wait_for_count(live, PRODUCE, 1).total_ns > 0


def test_a_parked_request_counts_when_it_is_answered(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    client.call(fetch(0, max_wait_ms=100), 11)
    times = wait_for_count(live, FETCH, 1)
    assert times.remote_ns >= 90_000_000
    assert times.remote_ns + times.local_ns <= times.total_ns * 1.01
    assert times.counts[times.total_ns.bit_length()] == 1


def test_the_traffic_of_a_topic_is_counted(live: LiveBroker, connect: Connect) -> None:
    partition = live.add_partition("t")
    client = connect()
    client.call(produce(), 7)
    client.call(produce(), 7)
    traffic = partition.traffic
    assert (traffic.batches_in, traffic.messages_in) == (2, 2)
    assert traffic.bytes_in == 2 * len(batch(b"value"))
    unknown = produce()
    unknown.topic_data[0].name = "made up"
    client.call(unknown, 7)
    assert live.broker.metrics.traffic.elsewhere.failed_produces == 1
    assert list(live.broker.metrics.traffic.topics) == []
