"""Listeners choose how the bytes of their connections travel: over TLS, what does over sockets."""

import ssl
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from live_broker import DEADLINE_S, FrameClient, LiveBroker, batch, has_no_connection_left
from secure_listener import Certificates, security_of, tls_settings
from waiting import wait_until

from fairlead_broker.limits import PARKED_WAIT_MAX_MS, REQUESTS_IN_FLIGHT_MAX
from fairlead_broker.net.server import ServerLimits
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def live_tls(tmp_path: Path, certificates: Certificates) -> Iterator[LiveBroker]:
    security = security_of(tls_settings(certificates))
    with LiveBroker(tmp_path, ServerLimits(), security=security) as broker:
        broker.add_partition("t")
        yield broker


@pytest.fixture
def client(live_tls: LiveBroker, certificates: Certificates) -> Iterator[FrameClient]:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with FrameClient(live_tls.port) as made:
        made.socket = context.wrap_socket(made.socket, server_hostname="127.0.0.1")
        yield made


def produce(*values: bytes) -> ProduceRequest:
    data = PartitionProduceData(0, batch(*values))
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=[data])]
    )


def fetch(offset: int, max_wait_ms: int = 0) -> FetchRequest:
    asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 26)
    return FetchRequest(
        topics=[FetchTopic("t", partitions=[asked])], max_wait_ms=max_wait_ms, min_bytes=1
    )


def records_of(response: Any) -> bytes:
    return bytes(response.responses[0].partitions[0].records or b"")


@pytest.mark.parametrize("size", [10, 100_000, 1_000_000])
def test_produce_and_fetch_through_tls(
    live_tls: LiveBroker, client: FrameClient, size: int
) -> None:
    for number in range(5):
        value = b"%d" % number * size
        produced = client.call(produce(value), 9).responses[0].partition_responses[0]
        assert (produced.error_code, produced.base_offset) == (0, number)
    fetched = records_of(client.call(fetch(0), 12))
    # The largest of these is far more than a socket takes at once.
    assert [fetched.count(b"%d" % number * size) for number in range(5)] == [1] * 5


def test_a_parked_fetch_is_answered_through_tls(live_tls: LiveBroker, client: FrameClient) -> None:
    client.send(fetch(0, max_wait_ms=20_000), 12)
    live_tls.eventually(lambda: len(live_tls.broker.fetch_purgatory) == 1)

    def append() -> None:
        data = memoryview(bytearray(batch(b"later")))
        partition = live_tls.broker.partitions["t", 0]
        partition.append_as_leader(data, required_acks=1, now_ms=live_tls.broker.clock.now_ms())

    live_tls.run(append)
    assert b"later" in records_of(client.receive(FetchRequest.API_KEY, 12)[1])


def test_requests_that_were_held_back_are_read_on(
    live_tls: LiveBroker, client: FrameClient
) -> None:
    """More come in one record than may be in flight, and nothing comes after them."""
    count = 3 * REQUESTS_IN_FLIGHT_MAX
    first = fetch(0, max_wait_ms=1000)
    frames = [client.encode(first, 12), *(client.encode(fetch(0), 12) for _ in range(count))]
    client.socket.sendall(b"".join(frames))
    for number in range(count + 1):
        assert client.receive(FetchRequest.API_KEY, 12)[0] == number + 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("says_goodbye", [True, False])
def test_a_peer_that_hangs_up_while_it_is_not_read_leaves_nothing_parked(
    live_tls: LiveBroker, certificates: Certificates, version: ssl.TLSVersion, says_goodbye: bool
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.minimum_version = context.maximum_version = version
    with FrameClient(live_tls.port) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        for _ in range(REQUESTS_IN_FLIGHT_MAX):
            client.send(fetch(0, max_wait_ms=PARKED_WAIT_MAX_MS), 12)
        purgatory = live_tls.broker.fetch_purgatory
        live_tls.eventually(lambda: len(purgatory) == REQUESTS_IN_FLIGHT_MAX)
        if says_goodbye:
            # It waits for the broker's, which does not read.
            client.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.socket.unwrap()
    wait_until(partial(has_no_connection_left, live_tls))
    assert len(purgatory) == 0


def test_listeners_beside_it_speak_on_plain_sockets(live_tls: LiveBroker) -> None:
    with FrameClient(live_tls.internal_port) as plain:
        plain.prove()
        assert plain.call(ApiVersionsRequest(), 0).error_code == 0


def test_who_does_not_speak_tls_is_shown_out(live_tls: LiveBroker) -> None:
    with FrameClient(live_tls.port) as plain:
        plain.socket.settimeout(DEADLINE_S)
        plain.socket.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        assert plain.is_closed_by_peer()
