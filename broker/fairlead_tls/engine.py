"""One TLS connection without its socket: OpenSSL on two buffers in memory.

What comes in is counted before OpenSSL sees it, and what goes out is the owner's to send. Nothing
is made for a caller before it has sent the beginning of a ClientHello, because an SSL object takes
40 KiB. Steps of a handshake compute for up to a millisecond, so they are for a thread; never two
threads on one engine.
"""

from __future__ import annotations

import ssl

from fairlead_tls.limits import (
    HANDSHAKE_BYTES_MAX,
    RECORD_BYTES_MAX,
    RECORD_HEADER_BYTES,
)

HANDSHAKE_RECORD = 0x16
_MAJOR_VERSION = 3


class TlsRefusedError(Exception):
    """The peer does not speak TLS, or not as this side wants it; the text says why."""


class TlsEngine:
    """The state of one connection; `tls` and the buffers are there once `has_begun`."""

    __slots__ = ("_greeting", "_received", "has_begun", "incoming", "outgoing", "tls")

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    tls: ssl.SSLObject

    def __init__(self) -> None:
        self._greeting = b""
        self._received = 0
        self.has_begun = False
        """Whether `tls` is there: a ClientHello has begun to arrive, or is about to leave."""

    def begin_client(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """Be the side that connects; `server_name` is told to the other one (SNI)."""
        self._begin(context, is_server=False, server_name=server_name)

    def feed_handshake(self, data: bytes, context: ssl.SSLContext) -> bool:
        """Take bytes of the handshake; tell whether they are enough for another step.

        TlsRefusedError if they are too many, or no TLS.
        """
        self._received += len(data)
        if self._received > HANDSHAKE_BYTES_MAX:
            raise TlsRefusedError(f"a handshake of more than {HANDSHAKE_BYTES_MAX} bytes")
        if not self.has_begun:
            self._greeting += data
            if not _is_greeting(self._greeting):
                return False
            self._begin(context, is_server=True)
            data, self._greeting = self._greeting, b""
        self.incoming.write(data)
        return True

    def step_handshake(self) -> bool:
        """Go on with the handshake; tell whether it is done. For a thread: it computes.

        TlsRefusedError if it cannot be done; an alert for the peer is in `outgoing` then.
        """
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsRefusedError(_explain(error)) from None
        return True

    def certificate(self) -> bytes | None:
        """Return the peer's certificate in DER, verified; None if it has shown none."""
        return self.tls.getpeercert(binary_form=True)

    def _begin(
        self, context: ssl.SSLContext, *, is_server: bool, server_name: str | None = None
    ) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=is_server, server_hostname=server_name
        )
        self.has_begun = True


def _explain(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    message = getattr(error, "verify_message", "")
    return f"{reason}: {message}" if message else reason


def _is_greeting(data: bytes) -> bool:
    """Tell whether the header of a handshake record is here; TlsRefusedError if it is none."""
    if data[0] != HANDSHAKE_RECORD:
        raise TlsRefusedError(_name(data))
    if len(data) < RECORD_HEADER_BYTES:
        return False
    if data[1] != _MAJOR_VERSION or not 0 < int.from_bytes(data[3:5]) <= RECORD_BYTES_MAX:
        raise TlsRefusedError("what it says first is no TLS")
    return True


def _name(data: bytes) -> str:
    if data[:1] == b"\0":
        return "it speaks Kafka's protocol without TLS"
    if data[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"):
        return "it speaks HTTP"
    return "what it says first is no TLS"
