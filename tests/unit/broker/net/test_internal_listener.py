"""What a flood cannot do: keep brokers from each other."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from live_broker import FrameClient, LiveBroker

from fairlead_broker.limits import (
    KIB,
    UNPROVED_FRAME_BYTES_MAX,
    UNPROVED_PER_IP_MAX,
    UNPROVED_S,
    UNPROVED_UNSENT_BYTES_MAX,
)
from fairlead_wire.messages.api_versions import ApiVersionsRequest

MakeLive = Callable[..., LiveBroker]
HELLO = ApiVersionsRequest("a", "1")
FLOOD = 200


@contextmanager
def flood(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections of one address that say nothing."""
    sockets = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]
    try:
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_clients_that_wait_for_their_turn_hold_up_no_broker(make_live: MakeLive) -> None:
    live = make_live(connection_creations_per_s=0, connection_creations_burst=2)
    with flood(live.port, FLOOD), FrameClient(live.internal_port) as broker:
        broker.prove()
        assert broker.call(HELLO, 3).error_code == 0
        assert live.run(lambda: len(live.server.connections)) == 3


def test_brokers_take_no_places_of_clients(make_live: MakeLive) -> None:
    live = make_live(connections_max=1, connections_per_ip_max=1)
    with FrameClient(live.internal_port) as broker, FrameClient(live.port) as client:
        broker.prove()
        assert client.call(HELLO, 3).error_code == 0
        with FrameClient(live.port) as second:
            assert second.is_closed_by_peer()


def test_the_last_descriptors_are_not_for_clients(make_live: MakeLive) -> None:
    """Logs and brokers need them; a descriptor's number is the lowest that is free."""
    with socket.socket() as probe:
        live = make_live(client_descriptor_max=probe.fileno() + 2 * FLOOD)
    with flood(live.port, 2 * FLOOD) as sockets:
        assert is_closed(sockets[-1])
        live.eventually(lambda: live.broker.metrics.connections_refused > 0)
        with FrameClient(live.internal_port) as broker:
            broker.prove()
            assert broker.call(HELLO, 3).error_code == 0
    live.eventually(lambda: not live.server.connections)
    with FrameClient(live.port) as client:
        assert client.call(HELLO, 3).error_code == 0


def test_peers_that_prove_nothing_push_each_other_out(live: LiveBroker) -> None:
    with FrameClient(live.internal_port) as broker:
        broker.prove()
        with flood(live.internal_port, UNPROVED_PER_IP_MAX + 10) as sockets:
            for sock in sockets[:10]:
                assert is_closed(sock)
            with FrameClient(live.internal_port) as late:
                late.prove()
                assert late.call(HELLO, 3).error_code == 0
            assert broker.call(HELLO, 3).error_code == 0
            for _ in range(UNPROVED_S + 1):
                live.run(live.server.pass_second)
            assert is_closed(sockets[-1])
        assert broker.call(HELLO, 3).error_code == 0
    live.eventually(lambda: not live.server.connections)
    assert live.run(lambda: len(live.server.unproved)) == 0


def test_a_peer_that_has_not_proved_itself_sends_and_is_sent_little(live: LiveBroker) -> None:
    with FrameClient(live.internal_port) as stranger:
        stranger.socket.sendall(struct.pack(">ihhih", UNPROVED_FRAME_BYTES_MAX + 1, 18, 3, 1, -1))
        assert stranger.is_closed_by_peer()
    with FrameClient(live.internal_port, receive_buffer=4096) as greedy:
        greedy.socket.settimeout(0.5)
        questions = greedy.encode(HELLO, 3) * 1000
        with pytest.raises(TimeoutError):
            for _ in range(1000):
                greedy.socket.sendall(questions)
        (connection,) = live.run(lambda: list(live.server.connections))
        waiting = live.run(lambda: connection.sender.unsent_bytes)
        # And what one turn answers, which is sent together.
        assert waiting < UNPROVED_UNSENT_BYTES_MAX + 128 * KIB
