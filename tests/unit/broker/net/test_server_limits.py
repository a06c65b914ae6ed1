"""Limits of all connections together: how many, how fast, how much memory."""

import resource
import socket
import struct
import time
from collections.abc import Callable

import pytest
from live_broker import DEADLINE_S, FrameClient, LiveBroker, batch

from fairlead_broker.net.creation_allowance import creations_burst
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

MakeLive = Callable[..., LiveBroker]
HELLO = ApiVersionsRequest("a", "1")


def connect_raw(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


@pytest.fixture
def many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5000
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"only {hard} open files are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_two_thousand_idle_connections_cost_little(live: LiveBroker) -> None:
    sockets = [connect_raw(live.port) for _ in range(2000)]
    try:
        live.eventually(lambda: len(live.server.connections) == 2000)
        with FrameClient(live.port) as client:
            before = live.run(time.thread_time)
            live.pass_seconds(10)
            assert live.run(time.thread_time) - before < 1, "ten sweeps of 2,000 connections"
            assert client.call(HELLO, 3).error_code == 0
        assert live.run(lambda: live.server.memory.used_bytes) == 0
    finally:
        for sock in sockets:
            sock.close()
    live.eventually(lambda: not live.server.connections)


def test_connections_above_the_limit_are_closed_at_once(make_live: MakeLive) -> None:
    live = make_live(connections_max=3)
    kept = [FrameClient(live.port) for _ in range(3)]
    for client in kept:
        assert client.call(HELLO, 3).error_code == 0
    with FrameClient(live.port) as refused:
        assert refused.is_closed_by_peer()
    assert live.broker.metrics.connections_refused == 1
    with FrameClient(live.internal_port) as broker:
        assert broker.call(HELLO, 3).error_code == 0, "brokers always get in"
    kept.pop().socket.close()
    live.eventually(lambda: len(live.server.connections) == 2)
    with FrameClient(live.port) as admitted:
        assert admitted.call(HELLO, 3).error_code == 0
    for client in kept:
        client.socket.close()


def test_limits_of_connections_change_while_clients_are_connected(make_live: MakeLive) -> None:
    live = make_live(connections_max=3)
    kept = [FrameClient(live.port) for _ in range(2)]
    for client in kept:
        assert client.call(HELLO, 3).error_code == 0

    def limit(total: int) -> None:
        live.server.set_connection_limits(total=total, per_ip=total, creations_per_s=1_000)

    live.run(lambda: limit(1))
    assert kept[0].call(HELLO, 3).error_code == 0, "who is there may stay"
    with FrameClient(live.port) as refused:
        assert refused.is_closed_by_peer()
    live.run(lambda: limit(3))
    with FrameClient(live.port) as admitted:
        assert admitted.call(HELLO, 3).error_code == 0
    for client in kept:
        client.socket.close()


def test_only_a_produce_may_be_tens_of_megabytes(live: LiveBroker) -> None:
    with FrameClient(live.port) as client:
        header = struct.pack(">ihhih", 17 << 20, 3, 9, 1, -1)
        client.socket.sendall(header + bytes((17 << 20) - 10))
        assert client.is_closed_by_peer()
    assert live.broker.metrics.protocol_errors == 1


def test_connections_of_one_address_are_limited(make_live: MakeLive) -> None:
    live = make_live(connections_per_ip_max=1)
    with FrameClient(live.port) as first, FrameClient(live.port) as second:
        assert first.call(HELLO, 3).error_code == 0
        assert second.is_closed_by_peer()
    live.eventually(lambda: not live.server.connections)
    with FrameClient(live.port) as third:
        assert third.call(HELLO, 3).error_code == 0


def test_an_address_may_have_a_limit_of_its_own(make_live: MakeLive) -> None:
    live = make_live(connections_per_ip_max=0, connections_per_ip_overrides={"127.0.0.1": 2})

    def limit(**overrides: int) -> None:
        live.server.set_connection_limits(
            total=100, per_ip=1, creations_per_s=1_000, per_ip_overrides=overrides
        )

    with FrameClient(live.port) as first, FrameClient(live.port) as second:
        assert first.call(HELLO, 3).error_code == second.call(HELLO, 3).error_code == 0
        with FrameClient(live.port) as third:
            assert third.is_closed_by_peer()
        live.run(lambda: limit(**{"127.0.0.1": 3, "192.0.2.1": 0}))
        with FrameClient(live.port) as third:
            assert third.call(HELLO, 3).error_code == 0
    live.eventually(lambda: not live.server.connections)
    live.run(limit)
    with FrameClient(live.port) as only, FrameClient(live.port) as other:
        assert only.call(HELLO, 3).error_code == 0
        assert other.is_closed_by_peer()


def test_connections_above_the_creation_rate_wait_their_turn(make_live: MakeLive) -> None:
    live = make_live(connection_creations_per_s=50, connection_creations_burst=5)
    started = time.monotonic()
    clients = [FrameClient(live.port) for _ in range(20)]
    for client in clients:
        assert client.call(HELLO, 3).error_code == 0
        client.socket.close()
    assert time.monotonic() - started > 0.2


def test_a_lower_creation_rate_lowers_how_many_may_come_at_once(make_live: MakeLive) -> None:
    live = make_live()
    live.run(
        lambda: live.server.set_connection_limits(total=1_000, per_ip=1_000, creations_per_s=1)
    )
    clients = [FrameClient(live.port) for _ in range(40)]
    try:
        live.eventually(lambda: live.broker.metrics.connections_opened > 0)
        assert clients[0].call(HELLO, 3).error_code == 0
        # Far fewer than 2,500, which the default rate of 200 a second lets in at once.
        clients[-1].socket.settimeout(1)
        with pytest.raises(TimeoutError):
            clients[-1].call(HELLO, 3)
    finally:
        for client in clients:
            client.socket.close()


@pytest.mark.parametrize(
    ("per_s", "burst"), [(1, 12), (9, 112), (200, 2_500), (2_147_483_647, 2_500)]
)
def test_the_burst_of_connections_follows_their_rate(per_s: int, burst: int) -> None:
    assert creations_burst(per_s) == burst


def test_frames_wait_for_memory_and_all_complete(make_live: MakeLive) -> None:
    live = make_live(request_memory_bytes=1 << 20)
    live.add_partition("t")
    clients = [FrameClient(live.port) for _ in range(8)]
    frames = []
    for client in clients:
        data = PartitionProduceData(0, batch(b"v" * 900_000))
        request = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[data])])
        frames.append(client.encode(request, 7))
    for client, frame in zip(clients, frames, strict=True):
        client.socket.sendall(frame[:500_000])
    live.eventually(lambda: live.server.memory.waiting_count > 0)
    # A frame that was granted what the budget lacked comes on top of it, once.
    assert live.run(lambda: live.server.memory.used_bytes) < 3 << 20
    with FrameClient(live.port) as small:
        assert small.call(HELLO, 3).error_code == 0, "small requests aren't affected"
    for client, frame in zip(clients, frames, strict=True):
        client.socket.settimeout(0.01)
        rest = memoryview(frame)[500_000:]
        while rest:
            try:
                rest = rest[client.socket.send(rest) :]
            except TimeoutError:
                break
        frames[clients.index(client)] = bytes(rest)
    pending = dict(zip(clients, frames, strict=True))
    deadline = time.monotonic() + DEADLINE_S
    while pending and time.monotonic() < deadline:
        for client, left in list(pending.items()):
            try:
                sent = client.socket.send(left) if left else 0
                pending[client] = left[sent:]
                if not pending[client]:
                    client.socket.settimeout(0.01)
                    _, response = client.receive(0, 7)
                    assert response.responses[0].partition_responses[0].error_code == 0
                    del pending[client]
            except TimeoutError:
                continue
    assert not pending
    for client in clients:
        client.socket.close()
    live.eventually(lambda: live.server.memory.used_bytes == 0)


def test_a_claimed_size_alone_holds_no_memory(make_live: MakeLive) -> None:
    live = make_live()
    sockets = [connect_raw(live.port) for _ in range(50)]
    for sock in sockets:
        sock.sendall(struct.pack(">i", 100 << 20) + b"\0" * 10)
    live.eventually(lambda: live.server.memory.used_bytes > 0)
    assert live.run(lambda: live.server.memory.used_bytes) <= 50 * 16 * 1024
    for sock in sockets:
        sock.close()
