"""The listening socket of sessions, and limits for peers that have not authenticated yet.

A connection counts from its accept on, whether or not it sends anything. The limits are
`UNPROVED_BYTES_MAX` in all, `UNPROVED_S` of time, `UNPROVED_MAX` at once and
`UNPROVED_PER_ADDRESS_MAX` of one address. A further connection ends the oldest one, so that a flood
does not lock brokers out. The HTTP server gets a connection only once the head of a request has
come over it. `on_proved` removes the limits.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web

from fairlead_controller.sessions.rare_log import RareLog
from fairlead_controller.sessions.session_tls import SessionTls
from fairlead_model.host_address import peer_address
from fairlead_model.session.session_protocol import UNPROVED_BYTES_MAX
from fairlead_model.session.unproved_peers import UnprovedPeers
from fairlead_sockets.accepting import Acceptor
from fairlead_sockets.listening import open_listening_socket
from fairlead_tls.engine import HANDSHAKE_RECORD
from fairlead_tls.handshake_pool import HandshakePool
from fairlead_tls.tls_layer import TlsLayer

logger = logging.getLogger(__name__)

UNPROVED_S: Final = 5.0
UNPROVED_MAX: Final = 1024
UNPROVED_PER_ADDRESS_MAX: Final = 512
ACCEPTS_PER_TURN: Final = 8
"""Small, so that brokers get many turns of the loop before a flood ends their connections."""
BACKLOG: Final = 1024

HEAD_END: Final = b"\r\n\r\n"
"""The end of the head of an HTTP request."""

MakeProtocol = Callable[[], asyncio.Protocol]


class SessionDoor:
    """The listening socket of one port. Made in a running loop."""

    def __init__(self, tls: SessionTls | None = None) -> None:
        """With `tls`, peers show certificates before anything else of them is read."""
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._handshakes = HandshakePool(self._loop, self._on_room)
        self._strangers: UnprovedPeers[_Stranger] = UnprovedPeers(
            total_max=UNPROVED_MAX,
            per_address_max=UNPROVED_PER_ADDRESS_MAX,
            patience_s=UNPROVED_S,
        )
        self._acceptor: Acceptor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._log = RareLog(logger)
        self._is_closed = False

    @property
    def strangers(self) -> int:
        """Number of connections that have not authenticated."""
        return len(self._strangers)

    async def listen(self, runner: web.AppRunner, host: str, port: int) -> tuple[str, int]:
        """Listen for a runner that was set up; return the address. OSError if the port is taken."""
        serve = runner.server
        if serve is None:
            raise RuntimeError("the HTTP server has not been set up")
        listening = open_listening_socket(host, port, backlog=BACKLOG)
        self._acceptor = Acceptor(
            listening,
            lambda: self._open(_Stranger(self, serve)),
            per_turn=ACCEPTS_PER_TURN,
            has_room=lambda: self._handshakes.has_room,
        )
        self._acceptor.resume()
        self._look()
        bound, number = listening.getsockname()[:2]
        return str(bound), int(number)

    def _open(self, stranger: "_Stranger") -> asyncio.Protocol:
        if self._tls is None:
            return stranger
        return TlsLayer(stranger, self._tls, self._handshakes, self._note_handshake)

    def _on_room(self) -> None:
        if self._acceptor is not None:
            self._acceptor.resume()

    def _note_handshake(self, reason: str) -> None:
        self._log.note(
            "handshakes refused",
            "refused a TLS handshake: %s; brokers come with a certificate that says who they are, "
            "to fairlead.controller.sessions=wss://…",
            reason,
        )

    async def close(self) -> None:
        """Stop listening, and end the connections that have not authenticated."""
        self._is_closed = True
        if self._acceptor is not None:
            await self._acceptor.close()
        if self._timer is not None:
            self._timer.cancel()
        for stranger in self._strangers.take_overdue(float("inf")):
            stranger.abort()
        self._handshakes.close()

    def arrived(self, stranger: "_Stranger", address: str) -> None:
        """Count a new connection; if there are too many now, abort the oldest."""
        if self._is_closed:
            stranger.abort()
            return
        leaving = self._strangers.add(stranger, address, self._loop.time())
        if leaving is not None:
            leaving.abort()
            self._note("too many have come")

    def left(self, stranger: "_Stranger") -> None:
        """Forget a connection that has closed."""
        self._strangers.discard(stranger)

    def refuse(self, stranger: "_Stranger") -> None:
        """Abort a connection that has sent too much."""
        self._strangers.discard(stranger)
        stranger.abort()
        self._note(f"more than {UNPROVED_BYTES_MAX} bytes came")

    def refuse_tls(self, stranger: "_Stranger") -> None:
        """Abort a connection that uses TLS on a port without TLS."""
        self._strangers.discard(stranger)
        stranger.abort()
        self._note(
            "it speaks TLS, and this controller does not: set its "
            "listener.security.protocol.map=CONTROLLER:SSL, or ws:// for brokers"
        )

    def _look(self) -> None:
        self._timer = self._loop.call_later(UNPROVED_S / 10, self._look)
        for stranger in self._strangers.take_overdue(self._loop.time()):
            stranger.abort()
            self._note(f"it took longer than {UNPROVED_S:.0f} s")

    def _note(self, reason: str) -> None:
        self._log.note("connections ended", "ended a connection without a proof: %s", reason)


class _Stranger(asyncio.Protocol):
    """Stands before the HTTP server's protocol until the peer has authenticated."""

    def __init__(self, door: SessionDoor, serve: MakeProtocol) -> None:
        self._door = door
        self._serve = serve
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._size = 0
        self._head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("not a stream")
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._door.arrived(self, peer_address(str(peer[0])) if peer else "")

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > UNPROVED_BYTES_MAX:
            self._door.refuse(self)
            return
        if self._inner is None:
            if not self._head and data[0] == HANDSHAKE_RECORD:
                self._door.refuse_tls(self)
                return
            self._head += data
            if HEAD_END not in self._head or self._transport is None:
                return
            data, self._head = bytes(self._head), bytearray()
            self._inner = self._serve()
            self._inner.connection_made(self._transport)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.left(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def on_proved(self) -> None:
        """Remove the limits: the connection belongs to the server from now on."""
        self._door.left(self)
        if self._transport is not None and self._inner is not None:
            self._transport.set_protocol(self._inner)


def on_proved(request: web.BaseRequest) -> None:
    """Remove all limits of a request's connection: its peer knows the cluster's secret."""
    transport = request.transport
    protocol = transport.get_protocol() if transport is not None else None
    if isinstance(protocol, _Stranger):
        protocol.on_proved()
