"""A request and its reply on an open connection, in Kafka's protocol."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from fairlead_cli.client_id import CLIENT_ID
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.header import decode_response, encode_request_frame

if TYPE_CHECKING:
    import socket

    from fairlead_wire.message import Message

# Errors that brokers send without a message, and that a user can do something about.
REASONS = {
    "CLUSTER_AUTHORIZATION_FAILED": "the user of this command may not do that to the cluster",
    "TOPIC_AUTHORIZATION_FAILED": "the user of this command may not do that to the topic",
    "GROUP_AUTHORIZATION_FAILED": "the user of this command may not do that to the group",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "the user of this command may not do that to the transactional id"
    ),
    "LOG_DIR_NOT_FOUND": "the broker has no such folder",
    "REPLICA_NOT_AVAILABLE": "the broker has no such replica",
}
LENGTH = struct.Struct(">i")
REPLY_BYTES_MAX = 16 << 20


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


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Return `size` bytes; EOFError if the broker closes the connection before."""
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError("it closed the connection")
        received += part
    return bytes(received)


def name_error(code: int) -> str:
    """Return Kafka's name of an error; the number if it is newer than this client."""
    names = {int(each): each.name for each in ErrorCode}
    return names.get(code, f"error {code}")


def explain_error(code: int, message: str | None = None) -> str:
    """Return the broker's message, or ours, with Kafka's name; else the name alone."""
    name = name_error(code)
    text = message or REASONS.get(name)
    return name if text is None else f"{text} ({name})"
