"""One TLS connection without its socket: OpenSSL on two buffers in memory.

Incoming bytes are counted before OpenSSL gets them; the owner sends the outgoing ones. An SSL
object takes 40 KiB, so it is not created before the client has sent the beginning of a ClientHello.
A step of a handshake computes for up to a millisecond, so run it in a thread; never use one engine
in two threads at once.
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
    """The peer does not use TLS, or not as this side requires; the text says why."""


class TlsEngine:
    """The state of one connection; `tls` and the buffers exist once `has_begun`."""

    __slots__ = ("_greeting", "_received", "has_begun", "incoming", "outgoing", "tls")

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    tls: ssl.SSLObject

    def __init__(self) -> None:
        self._greeting = b""
        self._received = 0
        self.has_begun = False
        """Whether `tls` exists: a ClientHello has begun to arrive, or is about to be sent."""

    def begin_client(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """Begin as the client; `server_name` is sent to the server (SNI)."""
        self._begin(context, is_server=False, server_name=server_name)

    def feed_handshake(self, data: bytes, context: ssl.SSLContext) -> bool:
        """Take bytes of the handshake; tell whether they suffice for another step.

        TlsRefusedError if they are too many, or not TLS.
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
        """Do a step of the handshake; tell whether it is done. For a thread: it computes.

        TlsRefusedError if the handshake fails; `outgoing` then has an alert for the peer.
        """
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsRefusedError(_explain(error)) from None
        return True

    def certificate(self) -> bytes | None:
        """Return the peer's verified certificate in DER; None if it sent none."""
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
    """Tell whether a handshake record's header is complete; TlsRefusedError if it is invalid."""
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
