"""What the controller reads of session messages, and how it waits for them on a socket."""

from collections.abc import Mapping
from typing import Any

from aiohttp import WSMsgType, web

from fairlead_model.codec import CodecError, text, whole
from fairlead_model.session.refusals import RefusalCode, RefusedError
from fairlead_model.session.session_messages import pack_message, unpack_message
from fairlead_model.session.session_protocol import (
    CONTAINER_LENGTH_MAX,
    HANDSHAKE_SIZE_MAX,
    MESSAGE_SIZE_MAX,
    MessageType,
    SessionProtocolError,
)


def error_reply(number: int, refusal: RefusedError) -> bytes:
    """Return the bytes of a refusal of one call."""
    return pack_message(
        MessageType.REPLY,
        id=number,
        error_code=int(refusal.code),
        error_message=refusal.message,
    )


def answer_reply(number: int, body: Mapping[str, Any]) -> bytes:
    """Return the bytes of the answer to one call; of a refusal if no broker takes so large a one.

    The broker would end its session, and with it every other call; some lists have no limit.
    """
    data = pack_message(MessageType.REPLY, id=number, body=body)
    longest = max((len(each) for each in body.values() if isinstance(each, list)), default=0)
    if len(data) < MESSAGE_SIZE_MAX and longest <= CONTAINER_LENGTH_MAX:
        return data
    refusal = RefusedError(
        RefusalCode.INVALID_REQUEST,
        f"the request was carried out, but the controller's answer is too large: {len(data)} "
        f"bytes; less than {MESSAGE_SIZE_MAX} bytes, and {CONTAINER_LENGTH_MAX} of a kind, fit; "
        "ask for less at a time",
    )
    return error_reply(number, refusal)


def read_position(value: object, *, minimum: int = 0) -> tuple[int, int] | None:
    """Read (controller epoch, sequence), or None; raise CodecError for anything else."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) < 2:
        raise CodecError("a position has two numbers")
    return whole(value[0], minimum=minimum), whole(value[1], minimum=minimum)


def read_replicas(value: object) -> tuple[tuple[str, int], ...]:
    """Read (topic, partition index) pairs; raise CodecError for anything else."""
    if value is None:
        return ()
    if not isinstance(value, list) or any(
        not isinstance(item, list) or len(item) < 2 for item in value
    ):
        raise CodecError("unclean replicas are a list of topic and index each")
    return tuple((text(topic), whole(index)) for topic, index, *_ in value)


async def receive(
    socket: web.WebSocketResponse, expected: MessageType, *, size_max: int = HANDSHAKE_SIZE_MAX
) -> dict[str, Any]:
    """Wait for a message of type `expected`; SessionProtocolError for any other, or for none."""
    message = await receive_any(socket, size_max=size_max)
    if message is None:
        raise SessionProtocolError(f"closed before {expected}")
    if message["type"] != expected:
        raise SessionProtocolError(f"expected {expected}, got {message['type'][:40]!r}")
    return message


async def receive_any(
    socket: web.WebSocketResponse, *, size_max: int = MESSAGE_SIZE_MAX
) -> dict[str, Any] | None:
    """Wait for a message; return None when the connection has closed."""
    frame = await socket.receive()
    if frame.type is WSMsgType.BINARY:
        if len(frame.data) > size_max:
            raise SessionProtocolError(f"a message of {len(frame.data)} bytes in the handshake")
        return unpack_message(frame.data)
    if frame.type is WSMsgType.TEXT:
        raise SessionProtocolError("text instead of a message")
    return None
