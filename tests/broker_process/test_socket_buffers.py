"""Settings of socket buffers, seen from outside the broker: in the kernel, and by its clients."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from kernel_sockets import BufferSizes, read_buffer_sizes, read_window_scales
from live_broker import FrameClient

from fairlead_broker.limits import FOLLOWER_SOCKET_BUFFER_BYTES, NEAR_SEND_BUFFER_BYTES
from fairlead_wire.messages.api_versions import ApiVersionsRequest

# Below what Linux allows by default (net.core.rmem_max and wmem_max: 212,992).
RECEIVE_BYTES, SEND_BYTES = 160 * 1024, 96 * 1024


@pytest.fixture
def broker(make_cluster: Callable[..., Any]) -> Any:
    """Start a broker with both settings."""
    settings = {
        "socket.receive.buffer.bytes": str(RECEIVE_BYTES),
        "socket.send.buffer.bytes": str(SEND_BYTES),
    }
    return make_cluster(settings=settings).brokers[0]


def buffer_sizes(client: FrameClient) -> BufferSizes:
    """Ask for those of the broker's end."""
    return read_buffer_sizes(client.socket.getpeername(), client.socket.getsockname())


def allowed_sending_bytes(size: int) -> int:
    """Return what a socket of this machine gets that asks for so many."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def window_scales(receive_bytes: int = 0) -> int:
    """Connect to a socket that asks for so many bytes, if any, before it listens."""
    with socket.socket() as listening:
        if receive_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname()) as client:
            return read_window_scales(client)


def test_buffer_sizes_reach_the_sockets_of_clients_before_they_are_accepted(broker: Any) -> None:
    host, _, port = broker.address.rpartition(":")
    assert host == "127.0.0.1"
    with FrameClient(int(port)) as client:
        assert read_window_scales(client.socket) == window_scales(RECEIVE_BYTES)
        assert window_scales(RECEIVE_BYTES) != window_scales(), "the kernel scales by the buffer"
        # A connection that is served has been accepted, and has all its options.
        assert client.call(ApiVersionsRequest("a", "1"), 3).error_code == 0
        assert buffer_sizes(client) == (2 * RECEIVE_BYTES, 2 * SEND_BYTES)


def test_a_client_that_is_near_has_its_records_sent_in_portions(
    make_cluster: Callable[..., Any],
) -> None:
    _, _, port = make_cluster().brokers[0].address.rpartition(":")
    with FrameClient(int(port)) as client:
        assert client.call(ApiVersionsRequest("a", "1"), 3).error_code == 0
        _, sending = buffer_sizes(client)
    assert sending == allowed_sending_bytes(NEAR_SEND_BUFFER_BYTES)


def test_brokers_send_to_followers_with_a_buffer_of_their_own(broker: Any) -> None:
    _, _, port = broker.ready["internal"].rpartition(":")
    with FrameClient(int(port)) as client:
        client.prove((broker.data.parent / "secret").read_bytes())
        sending = allowed_sending_bytes(FOLLOWER_SOCKET_BUFFER_BYTES)
        assert buffer_sizes(client) == (2 * RECEIVE_BYTES, sending)
