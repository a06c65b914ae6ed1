"""TLS between a socket and what is said over it: stands for the socket, decrypted."""

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
    """Stands for the socket: what is read from it was decrypted."""

    __slots__ = ("socket",)

    received = memoryview(bytearray(_RECEIVE_BYTES))
    """Shared by all streams: ciphertext is handed to OpenSSL in the turn in which it came."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.socket = sock

    def receive_handshake(self, context: ssl.SSLContext) -> bool:
        """Take what the socket has of the handshake; whether that is enough for another step.

        EOFError if the peer has gone; BlockingIOError if nothing is there.
        """
        data = self.socket.recv(HANDSHAKE_STEP_BYTES)
        if not data:
            raise EOFError
        return self.feed_handshake(data, context)

    def fileno(self) -> int:
        return self.socket.fileno()

    def recv_into(self, buffer: memoryview, /) -> int:
        """Fill the beginning of a buffer with what has been decrypted; 0 at the end."""
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
            # A count, though typeshed has `bytes` for both forms.
            filled += int(count)
        return filled

    def recvmsg_into(self, buffers: list[memoryview], /) -> tuple[int, object, object, object]:
        """Fill the first buffer: what TLS has decrypted costs no system call to come back for."""
        return self.recv_into(buffers[0]), [], 0, None

    @property
    def has_more(self) -> bool:
        """Whether bytes have come that the socket does not tell of any more."""
        return bool(self.tls.pending() or self.incoming.pending)

    def send(self, data: bytes | memoryview, /) -> int:
        """Send what is encrypted already."""
        return self.socket.send(data)

    def end(self) -> None:
        """Say that nothing follows, as far as the socket takes it; what comes is not waited for."""
        # It says so, and then wants to read the same from the peer.
        with suppress(ssl.SSLError, ValueError):
            self.tls.unwrap()
        self.send_alert()

    def send_alert(self) -> None:
        """Send the last words that OpenSSL has left, as far as the socket takes them."""
        if self.has_begun and self.outgoing.pending:
            try:
                self.socket.send(self.outgoing.read())
            except OSError:
                # They were a courtesy.
                return
