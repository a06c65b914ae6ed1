"""Requests over a connection: authorized before a handler sees them, and never asked of brokers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from denying import Denying, error_codes
from live_broker import FrameClient, LiveBroker, batch

from fairlead_broker.api_registry import HANDLERS, Handler
from fairlead_broker.authorization import (
    ANONYMOUS,
    BROKER,
    Operation,
    ResourceType,
    needs_cluster,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import (
    api_versions,
    fetch,
    produce,
)

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


@pytest.fixture
def denying() -> Denying:
    return Denying((TOPIC, "secret"))


@pytest.fixture
def live(tmp_path: Path, denying: Denying) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path, authorizer=denying) as broker:
        for name in ("open", "secret"):
            broker.add_partition(name)
        yield broker


def produced(*topics: str, acks: int = 1) -> Any:
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                name, partition_data=[produce.PartitionProduceData(0, batch(b"v"))]
            )
            for name in topics
        ],
    )


def fetched(*topics: str) -> Any:
    return fetch.FetchRequest(
        topics=[
            fetch.FetchTopic(name, partitions=[fetch.FetchPartition(0, partition_max_bytes=1000)])
            for name in topics
        ]
    )


def test_requests_are_authorized_before_handlers_see_them(
    live: LiveBroker, denying: Denying
) -> None:
    with FrameClient(live.port) as client:
        assert list(error_codes(client.call(produced("open", "secret"), 9))) == [0, 29]
        assert list(error_codes(client.call(produced("secret"), 9))) == [29]
        reply = client.call(fetched("open", "secret"), 12)
        slots = [topic.partitions[0] for topic in reply.responses]
        assert [slot.error_code for slot in slots] == [0, 29]
        assert [bool(slot.records) for slot in slots] == [True, False]
        assert live.broker.partitions["secret", 0].log_end_offset == 0
        client.send(produced("secret", acks=0), 9)
        assert client.is_closed_by_peer()
    assert denying.principals == {(ANONYMOUS, "127.0.0.1")}


def test_what_the_request_alone_tells_is_decided_in_dispatch(
    live: LiveBroker, denying: Denying, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(request: Any, context: Any) -> None:
        raise AssertionError("the handler sees a request that was denied")

    served = HANDLERS[ApiKey.API_VERSIONS]
    denying.denied.add((CLUSTER, "kafka-cluster"))
    guarded = Handler(
        ApiKey.API_VERSIONS,
        never,
        access=needs_cluster(Operation.DESCRIBE),
        versions=served.versions,
        advertised=served.advertised,
        internal_versions=served.internal_versions,
        borrows_frame=served.borrows_frame,
        answer_unknown_version=served.answer_unknown_version,
    )
    monkeypatch.setitem(HANDLERS, ApiKey.API_VERSIONS, guarded)
    with FrameClient(live.port) as client:
        reply = client.call(api_versions.ApiVersionsRequest(), 0)
        assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert denying.asked == [(Operation.DESCRIBE, CLUSTER, "kafka-cluster")]


def test_brokers_are_not_asked(live: LiveBroker, denying: Denying) -> None:
    with FrameClient(live.internal_port) as client:
        live.eventually(lambda: len(live.server.connections) == 1)
        (connection,) = live.server.connections
        assert connection.principal == ANONYMOUS
        client.prove()
        assert connection.principal == BROKER
        assert list(error_codes(client.call(fetched("secret"), 12))) == [0, 0]
    assert denying.asked == []
