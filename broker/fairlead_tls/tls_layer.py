"""TLS between an accepted connection and the protocol above it.

asyncio's own TLS would report a connection only after its handshake, and would compute the
handshake on the loop, where heartbeats are judged. Here the protocol above gets the connection when
it is accepted, so that it is counted from then on, and the handshake computes in threads. The
protocol above can be told when the handshake is done (`on_secure`), and can then be replaced by
another protocol (`set_protocol` of its transport).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from fairlead_tls.engine import HANDSHAKE_RECORD, TlsEngine, TlsRefusedError
from fairlead_tls.limits import HANDSHAKE_STEP_BYTES, UNASKED_BYTES_MAX

if TYPE_CHECKING:
    from concurrent.futures import Future

    from fairlead_tls.handshake_pool import HandshakePool

PEER: Final = "fairlead_peer"
"""Extra information of a transport: the peer of the certificate, from `Terms.identify`."""
_READ_BYTES: Final = 64 * 1024

Peer = TypeVar("Peer")
Peer_co = TypeVar("Peer_co", covariant=True)


class Terms(Protocol[Peer_co]):
    """The certificate for new connections, and how peers are identified."""

    @property
    def allows_plaintext(self) -> bool:
        """Whether connections without TLS pass this layer, too; the protocol above judges them."""
        ...

    def open_context(self) -> ssl.SSLContext:
        """Return the context of a new connection."""
        ...

    def identify(self, tls: ssl.SSLObject) -> Peer_co:
        """Return the peer with the certificate, which is verified; TlsRefusedError.

        Called in a thread.
        """
        ...


Refused = Callable[[str], None]
"""Called with the reason when a handshake is refused."""


class TlsLayer(asyncio.Protocol, Generic[Peer]):
    """The protocol of the socket. If plaintext is allowed, its bytes go to `above` unchanged."""

    def __init__(
        self,
        above: asyncio.Protocol,
        tls: Terms[Peer],
        pool: HandshakePool,
        on_refused: Refused,
        on_secure: Callable[[Peer], None] | None = None,
    ) -> None:
        """`on_secure` is called when the handshake is done, before any data is passed on."""
        self.above = above
        self.engine = TlsEngine()
        self.peer: Peer | None = None
        self.is_plain = False
        self._tls = tls
        self._pool = pool
        self._on_refused = on_refused
        self._on_secure = on_secure
        self._loop = asyncio.get_running_loop()
        self._raw: asyncio.Transport
        self._transport: _TlsTransport
        self._is_secure = False
        self._step: Future[Peer | None] | None = None
        self._behind = b""
        """Bytes that arrived with a handshake step and may be no part of it: at most one read."""
        self._is_paused = False
        self._unasked_bytes = 0
        """Bytes of TLS's own answers since the peer last had received all that was sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the protocol above at once."""
        self._raw = cast("asyncio.Transport", transport)
        self._transport = _TlsTransport(self, self._raw)
        self.above.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the handshake, or decrypt them."""
        if self.is_plain:
            self.above.data_received(data)
        elif self._is_secure:
            self.engine.incoming.write(data)
            self.read()
        else:
            self._receive_handshake(data)

    def eof_received(self) -> bool | None:
        """Close: TLS has no half-closed connections."""
        return self.above.eof_received() if self.is_plain else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol above; cancel a handshake step that waits."""
        if self._step is not None:
            self._step.cancel()
        self.above.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell the protocol above."""
        self.above.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol above."""
        self.above.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes of the protocol above."""
        if self._raw.is_closing():
            return
        if self.is_plain:
            self._raw.write(data)
        elif self._is_secure and data:
            self.engine.tls.write(data)
            self._flush()

    def close(self) -> None:
        """Tell the peer that nothing follows, and close once all has been sent."""
        if self._is_secure and not self._raw.is_closing():
            # `unwrap` sends the alert, and then raises because it wants the peer's.
            with suppress(ssl.SSLError, ValueError):
                self.engine.tls.unwrap()
            self._flush()
        self._raw.close()

    def pause_reading(self) -> None:
        """Pass no data on until `resume_reading`."""
        self._is_paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on, first with what is decrypted already."""
        self._is_paused = False
        self._raw.resume_reading()
        if self._is_secure:
            self._loop.call_soon(self.read)

    def read(self) -> None:
        """Pass on all data that can be decrypted."""
        try:
            while not self._is_paused and not self._raw.is_closing():
                data = self.engine.tls.read(_READ_BYTES)
                if not data:
                    self.close()
                    return
                self.above.data_received(data)
        except ssl.SSLWantReadError:
            self._answer()
        except ssl.SSLZeroReturnError:
            self.close()
        except ssl.SSLError:
            # An alert, mostly because the peer refuses our certificate, or an invalid record.
            self._raw.abort()

    def _receive_handshake(self, data: bytes) -> None:
        if self._raw.is_closing():
            return
        if self._tls.allows_plaintext and not self.engine.has_begun and data[0] != HANDSHAKE_RECORD:
            self.is_plain = True
            self.above.data_received(data)
            return
        # A client may send its request directly after its handshake, in the same read.
        data, self._behind = data[:HANDSHAKE_STEP_BYTES], data[HANDSHAKE_STEP_BYTES:]
        try:
            if not self.engine.feed_handshake(data, self._tls.open_context()):
                return
        except TlsRefusedError as error:
            self._refuse(str(error))
            return
        # Nothing may be fed while a thread uses the engine.
        self._raw.pause_reading()
        self._step = self._pool.run(self._do_step, self._on_step)

    def _do_step(self) -> Peer | None:
        """Do one step in a thread; return the peer once the handshake is done."""
        if not self.engine.step_handshake():
            return None
        return self._tls.identify(self.engine.tls)

    def _on_step(self, step: Future[Peer | None]) -> None:
        self._step = None
        if self._raw.is_closing():
            return
        try:
            peer = step.result()
        except TlsRefusedError as error:
            self._flush()
            self._refuse(str(error))
            return
        self._flush()
        if peer is None and self._behind:
            self._receive_handshake(self._behind)
            return
        self._raw.resume_reading()
        if peer is not None:
            self.peer = peer
            self._is_secure = True
            self.engine.incoming.write(self._behind)
            self._behind = b""
            if self._on_secure is not None:
                self._on_secure(peer)
            self.read()

    def _answer(self) -> None:
        """Send TLS's own answers, such as to key updates; abort a peer that does not read them."""
        if not self._raw.get_write_buffer_size():
            self._unasked_bytes = 0
        self._unasked_bytes += self.engine.outgoing.pending
        self._flush()
        if self._unasked_bytes > UNASKED_BYTES_MAX:
            self._raw.abort()

    def _flush(self) -> None:
        if self.engine.outgoing.pending:
            self._raw.write(self.engine.outgoing.read())

    def _refuse(self, reason: str) -> None:
        self._on_refused(reason)
        self._raw.close()


class _TlsTransport(asyncio.Transport):
    """The transport of the protocol above."""

    def __init__(self, layer: TlsLayer[Any], raw: asyncio.Transport) -> None:
        super().__init__()
        self._layer = layer
        self._raw = raw

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the connection: `PEER`, or the socket's."""
        if name == PEER:
            return self._layer.peer
        return self._raw.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._layer.above

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._layer.above = cast("asyncio.Protocol", protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        self._layer.write(data)

    def close(self) -> None:
        """Close once all has been sent."""
        self._layer.close()

    def abort(self) -> None:
        """Close at once."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Tell whether the transport is closing or closed."""
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        """Pass no data on for now."""
        self._layer.pause_reading()

    def resume_reading(self) -> None:
        """Pass data on again."""
        self._layer.resume_reading()

    def is_reading(self) -> bool:
        """Tell whether data is passed on."""
        return self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of encrypted data that waits to be sent."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits of the write buffer."""
        return self._raw.get_write_buffer_limits()

    def can_write_eof(self) -> bool:
        """Return False: TLS has no half-closed connections."""
        return False
