"""TLS on a socket: an object that is used like the socket, with decrypted data."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fairlead_tls.engine import TlsEngine
from fairlead_tls.limits import HANDSHAKE_STEP_BYTES

if TYPE_CHECKING:
    import socket

_RECEIVE_BYTES: Final = 128 * 1024


class TlsStream(TlsEngine):
    """Takes the place of the socket; reading returns decrypted data."""

    __slots__ = ("socket",)

    received = memoryview(bytearray(_RECEIVE_BYTES))
    """Shared by all streams: OpenSSL gets the ciphertext in the iteration in which it arrived."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.socket = sock

    def receive_handshake(self, context: ssl.SSLContext) -> bool:
        """Read handshake bytes from the socket; tell whether they suffice for another step.

        EOFError if the peer has closed; BlockingIOError if there are no bytes.
        """
        data = self.socket.recv(HANDSHAKE_STEP_BYTES)
        if not data:
            raise EOFError
        return self.feed_handshake(data, context)

    def fileno(self) -> int:
        return self.socket.fileno()

    def recv_into(self, buffer: memoryview, /) -> int:
        """Fill the beginning of a buffer with decrypted bytes; return 0 at the end."""
        tls = self.tls
        filled, size = 0, len(buffer)
        while filled < size:
            try:
                count = tls.read(size - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                if filled:
                    break
                received = self.socket.recv_into(self.received)
                if not received:
                    return 0
                self.incoming.write(self.received[:received])
                continue
            except ssl.SSLZeroReturnError:
                break
            except ssl.SSLError as error:
                if filled:
                    break
                raise ConnectionResetError(f"TLS: {error.reason}") from None
            if not count:
                break
            # `count` is an int, though typeshed says `bytes` for both forms.
            filled += int(count)
        return filled

    def recvmsg_into(self, buffers: list[memoryview], /) -> tuple[int, object, object, object]:
        """Fill the first buffer only: to read other decrypted bytes later takes no system call."""
        return self.recv_into(buffers[0]), [], 0, None

    @property
    def has_more(self) -> bool:
        """Whether bytes have arrived that the socket no longer reports as readable."""
        return bool(self.tls.pending() or self.incoming.pending)

    def send(self, data: bytes | memoryview, /) -> int:
        """Send bytes that are encrypted already."""
        return self.socket.send(data)

    def end(self) -> None:
        """Tell the peer that nothing follows, if the socket takes it; wait for no answer."""
        # `unwrap` writes the alert, and then raises because it wants the peer's.
        with suppress(ssl.SSLError, ValueError):
            self.tls.unwrap()
        self.send_alert()

    def send_alert(self) -> None:
        """Send the last alert of OpenSSL, as far as the socket takes it."""
        if self.has_begun and self.outgoing.pending:
            try:
                self.socket.send(self.outgoing.read())
            except OSError:
                # The alert is only a courtesy.
                return
