"""Frames and the headers of requests and responses.

    request v1    length i32, api_key i16, api_version i16, correlation_id i32, client_id string
    request v2    the same, then a tag section: the flexible versions
    response v0   length i32, correlation_id i32
    response v1   the same, then a tag section: the flexible versions, ApiVersions excepted

client_id is never compact, so that any broker can read the header of any ApiVersions request, even
of a version that it does not know. For the same reason its replies always have header v0.
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from fairlead_wire.message import Message
from fairlead_wire.messages import FLEXIBLE_FROM, RESPONSES
from fairlead_wire.primitives import skip_tags
from fairlead_wire.segments import Segment, segments_size

_REQUEST: Final = struct.Struct(">hhih")
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AND_ID: Final = struct.Struct(">ii")
_LENGTH_AND_ID_AND_TAGS: Final = struct.Struct(">iiB")
_REQUEST_FIXED: Final = struct.Struct(">ihhih")
_VERSION_MAX: Final = 32768
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)

# Above the last version: an API without flexible versions is never flexible.
_NEVER: Final = _VERSION_MAX


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(
    buffer: memoryview, position: int = 0, flexible_from: Mapping[int, int] = FLEXIBLE_FROM
) -> tuple[RequestHeader, int]:
    """Read a request's header; return it and the position of the body.

    `buffer` is the frame without its length. For an API that is not in `flexible_from`, the
    position is the one after client_id: it is unknown whether tags follow. Raises
    RemoteProtocolError.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(buffer, position)
        position += 10
        if size < 0:
            if size != -1:
                raise RemoteProtocolError(f"client_id has the length {size}")
            client_id = None
        else:
            end = position + size
            client_id = buffer[position:end].tobytes().decode()
            position = end
            if end > len(buffer):
                raise RemoteProtocolError("the request header is cut off")
        if api_version >= flexible_from.get(api_key, _NEVER):
            position = skip_tags(buffer, position) if buffer[position] else position + 1
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the request header is malformed: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def has_flexible_response_header(api_key: int, api_version: int) -> bool:
    """Tell whether the reply's header has a tag section."""
    return api_version >= FLEXIBLE_FROM.get(api_key, _NEVER) and api_key != _API_VERSIONS


def encode_response_frame(
    api_key: int, api_version: int, correlation_id: int, message: Message
) -> list[Segment]:
    """Return the whole reply, its length first. Its first segment is always bytes."""
    segments = message.encode(api_version)
    size = segments_size(segments)
    if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER) and api_key != _API_VERSIONS:
        head = _LENGTH_AND_ID_AND_TAGS.pack(size + 5, correlation_id, 0)
    else:
        head = _LENGTH_AND_ID.pack(size + 4, correlation_id)
    segments[0] = head + segments[0]  # type: ignore[operator]  # A message begins with bytes.
    return segments


def encode_request_frame(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: str | None,
    message: Message,
) -> list[Segment]:
    """Return the whole request, its length first."""
    segments = message.encode(api_version)
    name = b"" if client_id is None else client_id.encode()
    name_size = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER) else b""
    size = segments_size(segments) + _REQUEST.size + len(name) + len(tags)
    try:
        head = _REQUEST_FIXED.pack(size, api_key, api_version, correlation_id, name_size)
    except struct.error as error:
        raise LocalProtocolError(f"the request header cannot be encoded: {error}") from error
    return [head + name + tags, *segments]


def decode_response(buffer: memoryview, api_key: int, api_version: int) -> tuple[int, Message]:
    """Decode a reply (a frame without its length); return the correlation id and the message.

    An ApiVersions reply with UNSUPPORTED_VERSION has the body of version 0, whatever version was
    requested, so it is decoded as version 0.
    """
    try:
        (correlation_id,) = _LENGTH.unpack_from(buffer, 0)
        position = 4
        if has_flexible_response_header(api_key, api_version):
            position = skip_tags(buffer, position)
    except (struct.error, IndexError) as error:
        raise RemoteProtocolError(f"the response header is malformed: {error}") from error
    if api_key == _API_VERSIONS and bytes(buffer[4:6]) == _UNSUPPORTED_VERSION:
        api_version = 0
    message, position = RESPONSES[api_key].decode(buffer, position, api_version)
    if position != len(buffer):
        raise RemoteProtocolError(f"{len(buffer) - position} bytes behind the response")
    return correlation_id, message
