"""Encode and decode session messages, for both sides: msgpack with a limit for every length.

`session_protocol` describes the messages.
"""

from typing import Any

import msgpack

from fairlead_model.session.session_protocol import (
    CALL_SIZE_MAX,
    CONTAINER_LENGTH_MAX,
    UNPACK_LIMITS,
    SessionProtocolError,
    check_message,
)


def pack_message(message_type: str, **fields: Any) -> bytes:
    """Return the bytes of a message."""
    packed = msgpack.packb({"type": str(message_type), **fields}, use_bin_type=True)
    return bytes(packed)


def unpack_message(data: bytes) -> dict[str, Any]:
    """Read a message; SessionProtocolError if it is malformed."""
    try:
        value = msgpack.unpackb(data, **UNPACK_LIMITS)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise SessionProtocolError(f"not a message: {type(error).__name__}") from error
    return check_message(value)


def is_call_acceptable(data: bytes) -> bool:
    """Tell whether the controller will accept a call; it closes a session with any other call."""
    if len(data) > CALL_SIZE_MAX:
        return False
    if len(data) <= CONTAINER_LENGTH_MAX:
        # Each element takes at least one byte, so no array can be too long.
        return True
    try:
        unpack_message(data)
    except SessionProtocolError:
        return False
    return True
