"""Messages between brokers when one forwards a request of an HTTP client to another one. Pure.

An Envelope has the request as data, and beside it the principal and the address of the client. The
data is a msgpack map, to which a newer peer may add entries.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from fairlead_broker.authorization import Principal
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.envelope import EnvelopeRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_wire.segments import Buffer

_LINE_ENDS: Final = ("\r", "\n", "\0")


class ForwardedRequest(NamedTuple):
    """A request, and the client that sent it."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    principal: Principal
    client_host: str

    def to_http(self) -> bytes:
        """Return the request in HTTP's format, for a connection that closes after it."""
        lines = [
            f"{self.method} {self.target} HTTP/1.1",
            "Host: localhost",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            "Connection: close",
        ]
        if self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + self.body


class ForwardedAnswer(NamedTuple):
    """The answer of the other broker."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def pack_request(request: ForwardedRequest) -> EnvelopeRequest:
    """Return the envelope of a request."""
    data = {
        "method": request.method,
        "target": request.target,
        "headers": dict(request.headers),
        "body": request.body,
    }
    return EnvelopeRequest(
        msgpack.packb(data, unicode_errors="surrogateescape"),
        str(request.principal).encode(),
        _pack_host(request.client_host),
    )


def unpack_request(envelope: EnvelopeRequest) -> ForwardedRequest:
    """Return the request in an envelope; RemoteProtocolError."""
    data = _unpack(envelope.request_data)
    try:
        kind, colon, name = bytes(envelope.request_principal or b"").decode().partition(":")
        body = data["body"]
        if not colon or type(body) is not bytes:
            raise ValueError("no principal, or no body")
        return ForwardedRequest(
            _word(data["method"]),
            _word(data["target"]),
            {_word(name): _text(value) for name, value in data["headers"].items()},
            body,
            Principal(kind, name),
            _unpack_host(bytes(envelope.client_host_address)),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RemoteProtocolError(f"an envelope that holds no HTTP request: {error}") from error


def pack_answer(answer: ForwardedAnswer) -> bytes:
    """Return an answer as data."""
    packed: bytes = msgpack.packb(
        {"status": answer.status, "headers": dict(answer.headers), "body": answer.body}
    )
    return packed


def unpack_answer(data: Buffer) -> ForwardedAnswer:
    """Return the answer in an envelope's data; RemoteProtocolError."""
    found = _unpack(data)
    try:
        headers = {_word(name): _text(value) for name, value in found["headers"].items()}
        body = found["body"]
        if type(body) is not bytes:
            raise ValueError("no body")
        return ForwardedAnswer(int(found["status"]), headers, body)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RemoteProtocolError(f"an envelope that holds no HTTP answer: {error}") from error


def _unpack(data: Buffer) -> dict[str, Any]:
    try:
        found = msgpack.unpackb(bytes(data), unicode_errors="surrogateescape")
    except (ValueError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"an envelope that cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise RemoteProtocolError("an envelope that holds no map")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or any(each in value for each in _LINE_ENDS):
        raise ValueError("no text of one line")
    return value


def _word(value: Any) -> str:
    text = _text(value)
    if " " in text:
        raise ValueError("no word")
    return text


def _pack_host(host: str) -> bytes:
    """Return an address in the form of Kafka's envelopes: its four or sixteen bytes."""
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b""


def _unpack_host(packed: bytes) -> str:
    return str(ip_address(packed)) if packed else ""
