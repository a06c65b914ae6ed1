"""A broker's connection to another one, which leads something: requests out, whole replies in.

A raw non-blocking socket on the loop, like those of clients: no task and no future per fetch.
Replies are received into one buffer, and handed over as views of it that hold until the receiver
returns; records go from there straight to the log.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairlead_broker.limits import (
    FOLLOWER_REPLY_BUFFER_BYTES,
    FOLLOWER_SOCKET_BUFFER_BYTES,
    PEER_REPLY_BYTES_MAX,
    UNPROVED_FRAME_BYTES_MAX,
)
from fairlead_broker.peer_check import MECHANISM, PeerProof, PeerProofError
from fairlead_sockets.connecting import connect_to
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.header import decode_response, encode_request_frame
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_wire.message import Message

_LENGTH: Final = struct.Struct(">i")
_LENGTH_SIZE: Final = 4
_CALL_TIMEOUT_S: Final = 5.0
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_QUIET_FRAMES_MAX: Final = 200
"""After so many replies that need but an eighth of the buffer, a smaller one takes its place."""


async def connect_to_broker(host: str, port: int) -> socket.socket:
    """Return a connection to a broker; OSError."""
    return await connect_to(host, port, _configure)


def _configure(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FOLLOWER_SOCKET_BUFFER_BYTES)


class Source(Protocol):
    """Where replies come from: the socket, or what decrypts it."""

    def recv_into(self, buffer: memoryview, /) -> int: ...


class LeaderConnection:
    """`on_reply` gets each frame without its length; `closed` is done when all is over."""

    def __init__(self, sock: socket.socket, client_id: str) -> None:
        self.on_reply: Callable[[memoryview], None] | None = None
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._socket = sock
        self._source: Source = sock
        self._client_id = client_id
        self._correlation_id = 0
        self._unsent = bytearray()
        self._buffer = bytearray(FOLLOWER_REPLY_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._frame_size_max = UNPROVED_FRAME_BYTES_MAX
        self._quiet_frames = 0
        self._loop.add_reader(sock.fileno(), self._on_readable)

    @classmethod
    async def open(
        cls, host: str, port: int, *, client_id: str, timeout_s: float
    ) -> LeaderConnection:
        """Connect; OSError or TimeoutError."""
        async with asyncio.timeout(timeout_s):
            sock = await connect_to_broker(host, port)
        return cls(sock, client_id)

    async def prove(self, secret: bytes) -> None:
        """Prove to the listener that this is a broker of its cluster, and have it prove the same.

        PeerProofError, RemoteProtocolError, OSError or TimeoutError.
        """
        handshake = await self.call(SaslHandshakeRequest(MECHANISM), _HANDSHAKE_VERSION)
        if handshake.error_code:
            raise PeerProofError("the listener knows no proof of brokers")
        proof = PeerProof(secret)
        first = await self.call(SaslAuthenticateRequest(proof.nonce), _AUTHENTICATE_VERSION)
        if first.error_code:
            raise PeerProofError("the listener does not let brokers in")
        answer = proof.answer(bytes(first.auth_bytes))
        second = await self.call(SaslAuthenticateRequest(answer), _AUTHENTICATE_VERSION)
        if second.error_code:
            raise PeerProofError("the listener has another cluster secret")
        self._frame_size_max = PEER_REPLY_BYTES_MAX

    async def call(self, request: Any, version: int, timeout_s: float = _CALL_TIMEOUT_S) -> Any:
        """Send one request and return its reply; `on_reply` must not be in use.

        Where it raises, the connection is of no use any more: a reply may still come.
        """
        waiter: asyncio.Future[bytes] = self._loop.create_future()

        def receive(frame: memoryview) -> None:
            if not waiter.done():
                waiter.set_result(bytes(frame))

        self.on_reply = receive
        self.send(request, version)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait((waiter, self.closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.on_reply = None
        if not waiter.done():
            raise ConnectionResetError("the leader closed the connection")
        _, response = decode_response(memoryview(waiter.result()), request.API_KEY, version)
        return response

    def send(self, request: Message, version: int) -> None:
        """Send a request."""
        segments = encode_request_frame(
            type(request).API_KEY,
            version,
            self.next_correlation_id(),
            self._client_id,
            request,
        )
        self.send_frame(b"".join(bytes(segment) for segment in segments))  # type: ignore[arg-type]

    def next_correlation_id(self) -> int:
        """For a frame that the caller encodes itself."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def send_frame(self, data: bytes) -> None:
        """Send an encoded request; what the socket doesn't take follows when it does."""
        if self._unsent:
            self._unsent += data
            return
        try:
            count = self._socket.send(data)
        except BlockingIOError:
            count = 0
        except OSError:
            self.close()
            return
        if count < len(data):
            self._unsent += data[count:]
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def has_hung_up(self) -> bool:
        """Tell whether the leader has closed the connection, though the loop has yet to notice."""
        if self.closed.done():
            return True
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Let go of the socket; `closed` is done then."""
        if self.closed.done():
            return
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self.closed.set_result(None)

    def abort(self) -> None:
        """Let go of the socket, and of what the peer has not got yet: it shall not come late.

        The kernel would go on for minutes to send what was written before a close.
        """
        if not self.closed.done():
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.close()

    def _on_writable(self) -> None:
        try:
            count = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self._unsent[:count]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _on_readable(self) -> None:
        try:
            count = self._source.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        self._filled += count
        self._hand_over()

    def _hand_over(self) -> None:
        """Return on every whole frame; make room for one that doesn't fit."""
        position = 0
        while self._filled - position >= _LENGTH_SIZE:
            (size,) = _LENGTH.unpack_from(self._buffer, position)
            if not 0 < size <= self._frame_size_max:
                self.close()
                return
            end = position + _LENGTH_SIZE + size
            if end > self._filled:
                if end - position > len(self._buffer):
                    self._grow(position, end - position)
                    position = 0
                break
            self._note_size(end - position)
            on_reply = self.on_reply
            if on_reply is not None:
                try:
                    on_reply(self._view[position + _LENGTH_SIZE : end])
                except RemoteProtocolError:
                    self.close()
                except BaseException:
                    # Half taken in: the frame must not be handed over once more.
                    self.close()
                    raise
            if self.closed.done():
                return
            position = end
        self._keep(position)

    def _keep(self, position: int) -> None:
        """Move what follows the last whole frame to the front."""
        rest = self._filled - position
        if position and rest:
            self._buffer[:rest] = self._buffer[position : self._filled]
        self._filled = rest
        if not rest and self._quiet_frames >= _QUIET_FRAMES_MAX:
            self._quiet_frames = 0
            if len(self._buffer) > FOLLOWER_REPLY_BUFFER_BYTES:
                self._replace(bytearray(FOLLOWER_REPLY_BUFFER_BYTES))

    def _grow(self, position: int, size: int) -> None:
        larger = bytearray(size)
        rest = self._filled - position
        larger[:rest] = self._view[position : self._filled]
        self._replace(larger)
        self._filled = rest

    def _replace(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)

    def _note_size(self, size: int) -> None:
        is_small = size * 8 < len(self._buffer)
        self._quiet_frames = self._quiet_frames + 1 if is_small else 0
