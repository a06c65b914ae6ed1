"""How the bytes of a connection travel: what a listener chooses, and what it has to keep to.

A transport is two halves of one connection. The `FrameSource` takes bytes from the socket, cuts
frames and hands them to the connection; the `ReplySink` takes replies and puts their bytes on the
socket. Everything else of a connection (limits, order, deadlines, what a request means) is the same
for all transports. Plain sockets have `FrameReader` and `Sender`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairlead_broker.net.frame_reader import FrameReader
from fairlead_broker.net.sender import Sender

if TYPE_CHECKING:
    import socket

    from fairlead_broker.net.carried_connection import CarriedConnection
    from fairlead_broker.net.connection_host import TransportHost
    from fairlead_broker.net.sender import SendState
    from fairlead_wire.segments import Segment


class FrameSource(Protocol):
    """Bytes in: calls `begin_frames`, `handle_frame` and `end_frames` of its connection.

    It listens to the socket by itself, and not while the connection `is_over_limits`.
    """

    read_tick: int
    """Second of the server's sweep in which the peer was heard last."""

    @property
    def has_partial_frame(self) -> bool:
        """Whether the beginning of a frame is here and its end is not."""
        ...

    def maybe_resume(self) -> bool:
        """Go on with what was held back, if nothing stands against it; whether it did."""
        ...

    def overdue_s(self, tick: int) -> int:
        """Return the deadline that the frame at hand has missed, or 0."""
        ...

    def has_ended(self) -> bool:
        """Tell whether the peer has hung up while it was not read, with all it sent handled."""
        ...

    def close(self) -> None:
        """Stop listening to the socket, which is open still, and give all memory back."""
        ...


class ReplySink(Protocol):
    """Bytes out. The connection calls `flush` again when the socket takes more."""

    unsent_bytes: int
    """What was pushed and the socket has not taken."""
    progress: int
    """Moves whenever the socket takes something; one that stands still is a stalled peer."""
    is_cold: bool
    """Waits for a read that would have blocked; `Connection.on_warm` ends that."""

    def push(self, segments: list[Segment]) -> None:
        """Add a reply's segments; they are referred to until they are sent."""
        ...

    def flush(self) -> SendState:
        """Send what the socket takes now. OSError and SliceLostError end the connection."""
        ...


class OpenTransport(Protocol):
    """Makes both halves for a connection that is being made of an accepted socket."""

    def __call__(
        self, connection: CarriedConnection, server: TransportHost, sock: socket.socket
    ) -> tuple[FrameSource, ReplySink]:
        """Begin to listen to the socket; one that has bytes of its own to send, `flush`es."""
        ...


def open_plain(
    connection: CarriedConnection, server: TransportHost, sock: socket.socket
) -> tuple[FrameReader, Sender]:
    """Speak Kafka's protocol on the socket as it is."""
    sender = Sender(sock, server.read_ahead, connection.on_warm)
    return FrameReader(connection, server, sock), sender
