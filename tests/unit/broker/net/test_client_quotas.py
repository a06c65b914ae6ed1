"""Clients that use more than their quotas: told, answered empty, muted, and let go on (KIP-219)."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from live_broker import FrameClient, LiveBroker, batch, topic_id_of

from fairlead_broker import limits
from fairlead_broker.limits import REQUESTS_IN_FLIGHT_MAX
from fairlead_model.security.client_quota import THROTTLE_MS_MAX, quota_entity
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Connect = Callable[..., FrameClient]

EVERY_USER = (("user", None),)
APP = (("client-id", "test"),)
HELLO = ApiVersionsRequest("a", "1")
LONG_MS = 3_600_000
"""Longer than any test: who waits so long goes on only because somebody let him."""


def produce_request(size: int, acks: int = 1) -> ProduceRequest:
    records = batch(b"v" * size)
    topic = TopicProduceData("t", topic_id_of("t"), [PartitionProduceData(0, records)])
    return ProduceRequest(None, acks, 5000, [topic])


def fetch_request(offset: int, *, session_id: int = 0, epoch: int = -1, **fields: Any) -> Any:
    partition = FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=fields.get("max_wait_ms", 0),
        min_bytes=1,
        max_bytes=fields.get("max_bytes", 1 << 20),
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic("t", partitions=[partition])],
    )


def records_in(reply: Any) -> int:
    return sum(len(part.records or b"") for topic in reply.responses for part in topic.partitions)


def is_silent(client: FrameClient) -> bool:
    """Tell whether a request of this client stays without an answer for a while."""
    client.send(HELLO, 3)
    client.socket.settimeout(0.3)
    try:
        client.receive(HELLO.API_KEY, 3)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(10)
    return False


@pytest.fixture
def topic(live: LiveBroker) -> LiveBroker:
    live.add_partition("t")
    return live


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_above_the_quota_is_taken_told_and_its_connection_muted(
    topic: LiveBroker, connect: Connect, version: int
) -> None:
    topic.set_quotas({EVERY_USER: {"producer_byte_rate": 1.0}})
    client, other = connect(), connect()
    reply = client.call(produce_request(100_000), version)
    assert reply.responses[0].partition_responses[0].error_code == 0
    assert reply.throttle_time_ms > LONG_MS
    assert is_silent(client)
    assert other.call(HELLO, 3).throttle_time_ms == 0, "only produces are held back by this quota"
    assert topic.broker.metrics.throttles == {"produce": 1}
    assert topic.broker.metrics.throttle_ms["produce"] == reply.throttle_time_ms
    topic.set_quotas({})
    assert client.receive(HELLO.API_KEY, 3)[1].error_code == 0, "it goes on at once"


def test_who_is_far_above_a_tiny_quota_is_told_what_an_answer_can_say(
    topic: LiveBroker, connect: Connect
) -> None:
    """By what was used, 31 days: more milliseconds than the field holds."""
    other = connect()
    topic.set_quotas({EVERY_USER: {"producer_byte_rate": 1.0, "consumer_byte_rate": 1.0}})
    for _ in range(3):
        client = connect()
        reply = client.call(produce_request(900_000), 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        assert reply.throttle_time_ms == THROTTLE_MS_MAX
        assert is_silent(client)
    reader = connect()
    assert reader.call(fetch_request(0), 12).throttle_time_ms == THROTTLE_MS_MAX
    assert is_silent(reader)
    topic.set_quotas({EVERY_USER: {"request_percentage": 1e-310}})
    assert other.call(HELLO, 3).throttle_time_ms == topic.quotas.windows.size_ms


def test_who_waited_long_enough_goes_on(topic: LiveBroker, connect: Connect) -> None:
    topic.set_quotas({EVERY_USER: {"producer_byte_rate": 80_000.0}})
    client = connect()
    # From before: who hears late of the wait has waited for a part of it.
    before = time.monotonic()
    reply = client.call(produce_request(900_000), 9)
    assert 200 < reply.throttle_time_ms < 1300
    assert client.call(HELLO, 3).error_code == 0
    assert time.monotonic() - before >= reply.throttle_time_ms / 1000 - 0.05
    assert not topic.run(lambda: any(each.is_muted for each in topic.server.connections))


def test_acks_0_mutes_without_a_word(topic: LiveBroker, connect: Connect) -> None:
    topic.set_quotas({EVERY_USER: {"producer_byte_rate": 1.0}})
    client = connect()
    client.send(produce_request(100_000, acks=0), 9)
    assert is_silent(client)


def test_a_parked_produce_is_told_when_it_is_answered(topic: LiveBroker, connect: Connect) -> None:
    topic.add_partition("t", 1, isr=(0, 1))
    topic.set_quotas({EVERY_USER: {"producer_byte_rate": 1.0}})
    client = connect()
    request = produce_request(100_000, acks=-1)
    request.topic_data[0].partition_data[0].index = 1
    request.timeout_ms = 50
    reply = client.call(request, 9)
    assert reply.throttle_time_ms > LONG_MS
    assert is_silent(client)


def test_a_fetch_above_the_quota_is_empty_and_not_charged(
    topic: LiveBroker, connect: Connect
) -> None:
    client = connect()
    client.call(produce_request(100_000), 9)
    topic.set_quotas({EVERY_USER: {"consumer_byte_rate": 1000.0}})
    reply = client.call(fetch_request(0), 12)
    assert records_in(reply) == 0
    assert reply.throttle_time_ms > 1000
    now_ms = topic.broker.clock.monotonic_ms()
    meter = topic.run(lambda: topic.quotas.meters_of("ANONYMOUS", "test", now_ms)).fetch
    assert meter is not None
    assert meter.is_quiet(now_ms)
    assert is_silent(client)
    topic.set_quotas({EVERY_USER: {"consumer_byte_rate": 1_000_000.0}})
    client.receive(HELLO.API_KEY, 3)
    reply = client.call(fetch_request(0), 12)
    assert (records_in(reply) > 100_000, reply.throttle_time_ms) == (True, 0)
    assert topic.broker.metrics.throttles == {"fetch": 1}


def test_one_fetch_is_not_larger_than_all_windows_allow(
    topic: LiveBroker, connect: Connect
) -> None:
    client = connect()
    for _ in range(20):
        client.call(produce_request(5_000), 9)
    topic.set_quotas({APP: {"consumer_byte_rate": 2_500.0}})
    reply = client.call(fetch_request(0), 12)
    assert 0 < records_in(reply) <= 25_000
    assert reply.throttle_time_ms == 0


def test_a_session_that_a_client_was_not_told_of_is_none(
    topic: LiveBroker, connect: Connect
) -> None:
    client = connect()
    client.call(produce_request(100_000), 9)
    topic.set_quotas({EVERY_USER: {"consumer_byte_rate": 1000.0}})
    reply = client.call(fetch_request(0, epoch=0), 12)
    assert (reply.error_code, reply.session_id, records_in(reply)) == (0, 0, 0)
    assert topic.run(lambda: len(topic.broker.fetch_sessions)) == 0


def test_a_session_goes_on_after_an_empty_answer(topic: LiveBroker, connect: Connect) -> None:
    client = connect()
    reply = client.call(fetch_request(0, epoch=0), 12)
    session_id = reply.session_id
    assert session_id
    client.call(produce_request(100_000), 9)
    topic.set_quotas({EVERY_USER: {"consumer_byte_rate": 1000.0}})
    empty = client.call(fetch_request(0, session_id=session_id, epoch=1), 12)
    assert (empty.error_code, empty.session_id, empty.responses) == (0, session_id, [])
    assert empty.throttle_time_ms
    topic.set_quotas({})
    reply = client.call(fetch_request(0, session_id=session_id, epoch=2), 12)
    assert (reply.error_code, records_in(reply) > 100_000) == (0, True)


def test_time_of_requests_is_held_to_a_share_of_the_loop(
    topic: LiveBroker, connect: Connect
) -> None:
    topic.set_quotas({EVERY_USER: {"request_percentage": 1e-6}})
    client = connect()
    reply = client.call(HELLO, 3)
    assert reply.throttle_time_ms == 1000, "no longer than a window"
    assert topic.broker.metrics.throttles == {"request": 1}
    reply = client.call(fetch_request(0), 12)
    assert (records_in(reply), reply.throttle_time_ms) == (0, 1000)


def test_who_is_bound_by_no_quota_is_not_held_back(topic: LiveBroker, connect: Connect) -> None:
    topic.set_quotas(
        {
            (("user", "alice"),): {"producer_byte_rate": 1.0, "request_percentage": 1e-6},
            (("client-id", "other"),): {"producer_byte_rate": 1.0},
        }
    )
    client = connect()
    for _ in range(3):
        assert client.call(produce_request(100_000), 9).throttle_time_ms == 0
    assert not topic.broker.metrics.throttles
    assert topic.run(lambda: len(topic.quotas)) == 0


def test_brokers_are_never_held_back(topic: LiveBroker) -> None:
    topic.set_quotas({EVERY_USER: {"request_percentage": 1e-6, "producer_byte_rate": 1.0}})
    with FrameClient(topic.internal_port) as broker:
        broker.prove()
        assert broker.call(produce_request(100_000), 9).throttle_time_ms == 0
        assert broker.call(HELLO, 3).throttle_time_ms == 0


def test_what_was_sent_before_a_mute_waits_and_is_answered_in_order(
    topic: LiveBroker, connect: Connect
) -> None:
    topic.set_quotas({EVERY_USER: {"producer_byte_rate": 1.0}})
    client = connect()
    frames = client.encode(produce_request(20_000), 9) + b"".join(
        client.encode(HELLO, 3) for _ in range(REQUESTS_IN_FLIGHT_MAX + 4)
    )
    client.socket.sendall(frames)
    assert client.receive(0, 9)[0] == 1
    topic.eventually(lambda: topic.server.memory.used_bytes > 0)
    assert topic.broker.metrics.requests[HELLO.API_KEY] == 0
    topic.set_quotas({})
    answered = [client.receive(HELLO.API_KEY, 3)[0] for _ in range(REQUESTS_IN_FLIGHT_MAX + 4)]
    assert answered == list(range(2, REQUESTS_IN_FLIGHT_MAX + 6))


def test_who_is_muted_is_not_called_idle(topic: LiveBroker, connect: Connect) -> None:
    topic.set_quotas({EVERY_USER: {"producer_byte_rate": 1.0}})
    client, quiet = connect(), connect()
    assert quiet.call(HELLO, 3).error_code == 0
    client.call(produce_request(100_000), 9)
    topic.pass_seconds(limits.IDLE_CONNECTION_S + 5)
    assert quiet.is_closed_by_peer()
    topic.set_quotas({})
    assert client.call(HELLO, 3).error_code == 0


def test_an_address_that_connects_too_often_is_closed_after_a_while(topic: LiveBroker) -> None:
    topic.set_quotas({(("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0}})
    for _ in range(10):
        with FrameClient(topic.port) as client:
            assert client.call(HELLO, 3).error_code == 0
    before = time.monotonic()
    with FrameClient(topic.port) as late:
        late.send(HELLO, 3)
        assert late.is_closed_by_peer()
    metrics = topic.broker.metrics
    assert metrics.throttles == {"connection_creation": 1}
    assert time.monotonic() - before >= metrics.throttle_ms["connection_creation"] / 1000 - 0.05
    with FrameClient(topic.internal_port) as broker:
        assert broker.call(HELLO, 3).error_code == 0, "brokers always get in"
    topic.set_quotas({})
    with FrameClient(topic.port) as client:
        assert client.call(HELLO, 3).error_code == 0


def test_an_address_is_the_same_one_on_a_socket_for_both_families(tmp_path: Path) -> None:
    """Such a socket shows 127.0.0.1 as ::ffff:127.0.0.1, and a quota may be written like that."""
    entity = quota_entity([("ip", "::ffff:127.0.0.1")])
    with LiveBroker(tmp_path, host="::") as live:
        live.set_quotas({entity: {"connection_creation_rate": 1.0}})
        for _ in range(10):
            with FrameClient(live.port) as client:
                assert client.call(HELLO, 3).error_code == 0
        with FrameClient(live.port) as late:
            late.send(HELLO, 3)
            assert late.is_closed_by_peer()


def test_sockets_that_wait_for_their_end_are_bounded(
    topic: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.net.delayed_sockets.DELAYED_SOCKETS_MAX", 5)
    topic.set_quotas({(("ip", None),): {"connection_creation_rate": 1.0}})
    sockets = [socket.create_connection(("127.0.0.1", topic.port)) for _ in range(40)]
    topic.eventually(
        lambda: (
            topic.broker.metrics.throttles["connection_creation"] >= 25
            and len(topic.server._delayed_sockets) <= 5
        )
    )
    topic.eventually(lambda: len(topic.server._delayed_sockets) == 0)
    for sock in sockets:
        sock.close()
