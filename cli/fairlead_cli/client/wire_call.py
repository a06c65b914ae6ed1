"""One request to one broker, for the few APIs that librdkafka's Python client does not have."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.access import login_settings, wrap
from fairlead_cli.client.connection import CLIENT_ID, REQUEST_TIMEOUT_S
from fairlead_cli.errors import CliError
from fairlead_model.host_address import join_address
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.header import decode_response, encode_request_frame
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest
from fairlead_wire.sasl_login import LoginRefusedError, log_in

if TYPE_CHECKING:
    from fairlead_wire.message import Message

LENGTH = struct.Struct(">i")


class NoAnswerError(CliError):
    """No reply came; the broker may be starting anew."""


REPLY_BYTES_MAX = 16 << 20


def call_broker(host: str, port: int, message: Message, version: int) -> Any:
    """Return the reply to one request on a connection of its own. CliError when none comes."""
    try:
        with (
            socket.create_connection((host, port), timeout=REQUEST_TIMEOUT_S) as plain,
            wrap(plain, host) as connection,
        ):
            _log_in(connection)
            return exchange(connection, message, version)
    except (OSError, EOFError, RemoteProtocolError, LoginRefusedError) as error:
        raise NoAnswerError(
            f"broker {join_address(host, port)} did not answer {type(message).__name__}: {error}",
            hint="It may be too old for this request, or gone. Look:  "
            f"fairlead status{cluster_arguments()}",
        ) from error


def exchange(connection: socket.socket, message: Message, version: int) -> Any:
    """Send one request and return its reply. OSError, EOFError or RemoteProtocolError."""
    api_key = message.API_KEY
    frame = encode_request_frame(api_key, version, 1, CLIENT_ID, message)
    connection.sendall(b"".join(bytes(part) for part in frame))  # type: ignore[arg-type]
    (size,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
    if not 0 <= size <= REPLY_BYTES_MAX:
        raise RemoteProtocolError(f"a reply of {size} bytes")
    reply = receive_exactly(connection, size)
    return decode_response(memoryview(reply), api_key, version)[1]


def _log_in(connection: socket.socket) -> None:
    """Log in where the client's settings say by what. LoginRefusedError, and as `exchange`."""
    login = login_settings()
    if login is None:
        return
    handshake = exchange(connection, SaslHandshakeRequest(login.mechanism), 1)
    if handshake.error_code:
        enabled = ", ".join(handshake.mechanisms)
        raise LoginRefusedError(f"it takes {enabled}, not {login.mechanism}")

    def send(token: bytes) -> bytes:
        reply = exchange(connection, SaslAuthenticateRequest(token), 2)
        if reply.error_code:
            raise LoginRefusedError(reply.error_message or name_error(reply.error_code))
        return bytes(reply.auth_bytes)

    log_in(login.mechanism, login.user, login.password, send)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; EOFError when the broker closes the connection before."""
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError("it closed the connection")
        received += part
    return bytes(received)


def name_error(code: int) -> str:
    """Kafka's name; the number of one that is newer than this client."""
    names = {int(each): each.name for each in ErrorCode}
    return names.get(code, f"error {code}")
