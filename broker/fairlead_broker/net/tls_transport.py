"""Connections over TLS: the handshake, frames out of what was decrypted, replies encrypted.

A listener's transport has one certificate at a time; another one is for connections that come
later. `sendfile` has no part in this: slices of segment files are read from the page cache and
encrypted. Once the handshake is done the connection hears who its peer is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from fairlead_broker.limits import BYTES_SENT_PER_TURN, SEGMENTS_PER_SEND, TLS_SEND_BYTES
from fairlead_broker.net.frame_reader import FrameReader
from fairlead_broker.net.read_ahead import read_exactly
from fairlead_broker.net.sender import Sender, SendState
from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.limits import UNASKED_BYTES_MAX
from fairlead_tls.tls_stream import TlsStream

if TYPE_CHECKING:
    import asyncio
    import socket
    from concurrent.futures import Future

    from fairlead_broker.net.carried_connection import CarriedConnection
    from fairlead_broker.net.connection_host import TransportHost
    from fairlead_broker.net.read_ahead import Slice
    from fairlead_broker.net.tls_peers import Identify, Peer
    from fairlead_tls.certificates import Identity
    from fairlead_tls.followed_certificate import FollowedCertificate, FollowedPeer

_MEMORY: Final = (bytes, bytearray, memoryview)


class TlsTransport:
    """Opens the connections of one listener, each with the certificate of its moment."""

    def __init__(
        self, certificate: FollowedCertificate[Identity] | FollowedPeer, identify: Identify
    ) -> None:
        self.certificate = certificate
        self.identify = identify

    def __call__(
        self, connection: CarriedConnection, server: TransportHost, sock: socket.socket
    ) -> tuple[TlsReader, TlsSender]:
        stream = TlsStream(sock)
        sender = TlsSender(stream, server, connection)
        return TlsReader(connection, server, stream, sender, self), sender


class TlsReader(FrameReader):
    """The handshake first, then frames from a stream that may hold more than its socket shows."""

    __slots__ = (
        "_end_timer",
        "_is_due",
        "_is_secure",
        "_sender",
        "_step",
        "_stream",
        "_transport",
    )

    farewell_bytes: ClassVar[int] = 31
    """TLS says goodbye before a socket closes, in as many bytes: in less than that there is room
    for 10 bytes of a request, and the smallest has 14. Ciphers with CBC take more for it."""

    def __init__(
        self,
        connection: CarriedConnection,
        server: TransportHost,
        stream: TlsStream,
        sender: TlsSender,
        transport: TlsTransport,
    ) -> None:
        super().__init__(connection, server, stream)
        self._stream = stream
        self._sender = sender
        self._transport = transport
        self._is_secure = False
        self._step: Future[Peer | None] | None = None
        self._is_due = False
        self._end_timer: asyncio.TimerHandle | None = None

    def on_readable(self) -> None:
        """Read what has come; what of it is still inside TLS then has a turn of its own."""
        self._is_due = False
        connection = self._connection
        if connection.is_closed or not self.is_reading:
            return
        if not self._is_secure:
            self._receive_handshake()
            return
        super().on_readable()
        if self._connection.is_closed:
            return
        if self._stream.outgoing.pending:
            # An answer of TLS itself: the peer has asked for new keys.
            connection.flush()
            if self._stream.outgoing.pending > UNASKED_BYTES_MAX:
                connection.close("it asks for new keys and takes none")
                return
        self._read_on()

    def update_reading(self) -> None:
        was_reading = self.is_reading
        super().update_reading()
        if self.is_reading and not was_reading:
            self._read_on()

    def has_ended(self) -> bool:
        return super().has_ended() and self._is_secure and not self._stream.has_more

    def close(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        if self._is_secure and self._sender.may_end:
            self._stream.end()
        elif self._step is None or self._step.cancel():
            # Otherwise a thread is at it.
            self._stream.send_alert()
        super().close()

    def _read_on(self) -> None:
        """See to it that bytes are handled that the socket does not tell of any more."""
        if self.is_reading and not self._is_due and self._stream.has_more:
            self._is_due = True
            self._server.loop.call_soon(self.on_readable)

    def _receive_handshake(self) -> None:
        self.read_tick = self._server.tick
        connection = self._connection
        try:
            if not self._stream.receive_handshake(self._transport.certificate.current.context):
                return
        except BlockingIOError:
            return
        except (EOFError, OSError):
            # Port scans and health checks come and go like this all day.
            connection.close()
            return
        except TlsRefusedError as error:
            self._refuse(error)
            return
        self._server.loop.remove_reader(self._fd)
        step = partial(_step, self._stream, self._transport.identify)
        pool = self._server.handshakes_on(connection.listener)
        self._step = pool.run(step, self._on_step)

    def _on_step(self, future: Future[Peer | None]) -> None:
        self._step = None
        connection = self._connection
        if connection.is_closed:
            return
        try:
            peer = future.result()
        except TlsRefusedError as error:
            self._refuse(error)
            return
        self._server.loop.add_reader(self._fd, self.on_readable)
        connection.flush()
        if peer is None or self._connection.is_closed:
            return
        self._is_secure = True
        if peer.until is not None:
            left_s = (peer.until - _now()).total_seconds()
            reason = "its certificate is over"
            self._end_timer = self._server.loop.call_later(left_s, connection.close, reason)
        if peer.broker_id is not None:
            connection.replica_ids = (peer.broker_id,)
        connection.on_secure(peer.principal)
        self._read_on()

    def _refuse(self, error: TlsRefusedError) -> None:
        self._server.metrics.tls_handshakes_failed += 1
        self._connection.close(f"no TLS handshake: {error}")


def _now() -> datetime:
    return datetime.now(UTC)


def _step(stream: TlsStream, identify: Identify) -> Peer | None:
    """Do one step of a handshake; return who the peer is once it is done."""
    return identify(stream.certificate()) if stream.step_handshake() else None


class TlsSender(Sender):
    """Replies, encrypted a piece at a time when the socket has taken the one before.

    `_encrypted` is what of the last piece is still to be sent, and stands for `_encrypted_of`
    bytes of replies.
    """

    __slots__ = ("_encrypted", "_encrypted_of", "_stream")

    def __init__(
        self, stream: TlsStream, server: TransportHost, connection: CarriedConnection
    ) -> None:
        super().__init__(stream.socket, server.read_ahead, connection.on_warm)
        self._stream = stream
        self._encrypted = memoryview(b"")
        self._encrypted_of = 0

    @property
    def may_end(self) -> bool:
        """Whether the last record has left whole, so that another one may follow."""
        return not self._encrypted

    def flush(self) -> SendState:
        """Send what the socket takes now. OSError and SliceLostError end the connection."""
        left_in_turn = BYTES_SENT_PER_TURN
        while True:
            if self._encrypted:
                if not self._send_encrypted():
                    return SendState.FULL
            elif self._stream.has_begun and self._stream.outgoing.pending:
                self._encrypted = memoryview(self._stream.outgoing.read())
            elif self.is_cold:
                return SendState.COLD
            elif not self._queue:
                return SendState.DONE
            elif left_in_turn <= 0:
                return SendState.TURN_OVER
            else:
                piece = self._take_piece()
                if piece:
                    self._stream.tls.write(piece)
                    self._encrypted_of = len(piece)
                    left_in_turn -= len(piece)

    def _send_encrypted(self) -> bool:
        """Send what is encrypted; whether all of it has left."""
        try:
            count = self._stream.send(self._encrypted)
        except BlockingIOError:
            return False
        self.progress += 1
        if count < len(self._encrypted):
            self._encrypted = self._encrypted[count:]
            return False
        self._encrypted = memoryview(b"")
        self.unsent_bytes -= self._encrypted_of
        self._encrypted_of = 0
        return True

    def _take_piece(self) -> bytes | bytearray | memoryview:
        """Take bytes off the queue that become records together; none while they are cold."""
        queue = self._queue
        pieces: list[bytes | bytearray | memoryview] = []
        left = TLS_SEND_BYTES
        while queue and left and len(pieces) < SEGMENTS_PER_SEND:
            head = queue[0]
            if not isinstance(head, _MEMORY):
                data = self._read_slice(head, left)
                if data is None:
                    break
                pieces.append(data)
            elif len(head) > left:
                pieces.append(memoryview(head)[:left])
                queue[0] = memoryview(head)[left:]
            else:
                pieces.append(queue.popleft())
            left -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_slice(self, file_slice: Slice, limit: int) -> bytearray | None:
        """Read the next piece of a slice of a file; None while it is cold."""
        position = file_slice.position + self._slice_sent
        size = min(file_slice.length - self._slice_sent, limit)
        fd = file_slice.file.read_fd
        if position >= self._cached_until:
            whole = min(file_slice.length - self._slice_sent, BYTES_SENT_PER_TURN)
            if not self._read_ahead.is_cached(fd, position, whole):
                self._warm_up(file_slice, position, whole)
                return None
            self._cached_until = position + whole
        size = min(size, self._cached_until - position)
        data = bytearray(size)
        read_exactly(fd, memoryview(data), position)
        self._slice_sent += size
        if self._slice_sent == file_slice.length:
            self._queue.popleft()
            self._slice_sent = 0
            self._cached_until = 0
        return data
