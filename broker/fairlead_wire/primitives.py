"""Functions that generated decoders and encoders call: varints, tag sections, arrays, refusals.

A compact length is sent as n + 1, with 0 for null. Most lengths fit into one byte, which the
generated code reads itself; this module reads the longer ones.
"""

import struct
from typing import Final, TypeAlias

from fairlead_wire.errors import LocalProtocolError, RemoteProtocolError
from fairlead_wire.segments import Buffer, Records, Segment

NULL_UUID: Final = bytes(16)
STRING_SIZE_MAX: Final = 32767
ELEMENTS_MAX: Final = 150_000
"""Array elements and tagged fields of one request; eight numbers count as one. To decode so many
holds a broker up for a fifth of a second, before any handler asks whether they are too many, or
whether the client may ask at all. The most that a handler takes, the 100,000 partitions of an
OffsetFetch or of a member of KIP-848, are less, even if each is of another topic."""
TAGS_MAX: Final = 100
"""Tagged fields of one struct; no message defines as many as ten."""
# Records above this size are separate segments; below it, one more copy is cheaper than one more
# element in the socket's vector.
JOINED_RECORDS_MAX: Final = 4096

DECODE_ERRORS: Final = (IndexError, struct.error, UnicodeDecodeError)
ENCODE_ERRORS: Final = (struct.error, UnicodeEncodeError, AttributeError, TypeError)
# The unsigned varints of one byte.
UVARINTS: Final = tuple(bytes((value,)) for value in range(128))

unpack_from = struct.unpack_from

Payloads: TypeAlias = list[tuple[int, int, int]]

_UVARINT_BITS_MAX: Final = 35
# One counter is enough: a process decodes its requests one after the other, on one thread.
_elements_left: Final = [ELEMENTS_MAX]
_INT32_ARRAYS: Final = tuple(struct.Struct(f">i{count}i") for count in range(16))
_COMPACT_INT32_ARRAYS: Final = tuple(struct.Struct(f">B{count}i") for count in range(16))


def begin_elements() -> None:
    """Begin the count of a request's elements."""
    _elements_left[0] = ELEMENTS_MAX


def count_elements(count: int) -> None:
    """Count elements of a request before memory is allocated for them."""
    left = _elements_left[0] - count
    if left < 0:
        raise RemoteProtocolError(f"a request of more than {ELEMENTS_MAX} elements")
    _elements_left[0] = left


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes; return it and the position after it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift == _UVARINT_BITS_MAX:
            raise RemoteProtocolError("a varint of more than five bytes")
    if value > 0xFFFFFFFF:
        raise RemoteProtocolError("a varint above 32 bits")
    return value, position


def read_string_size(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read the compact length (n + 1) of a string, which has the limit of a plain one."""
    size, position = read_uvarint(buffer, position)
    if size - 1 > STRING_SIZE_MAX:
        raise RemoteProtocolError(f"a string of {size - 1} bytes")
    return size, position


def read_tags(buffer: Buffer, position: int) -> tuple[Payloads, int]:
    """Read a tag section; return (tag, start, stop) of each payload and the position after all."""
    count = buffer[position]
    position += 1
    if count > 127:
        count, position = read_uvarint(buffer, position - 1)
    if count > TAGS_MAX or count * 2 > len(buffer) - position:
        raise RemoteProtocolError(f"{count} tagged fields in {len(buffer) - position} bytes")
    payloads: Payloads = []
    previous = -1
    for _ in range(count):
        tag, size = buffer[position], buffer[position + 1]
        position += 2
        if tag > 127 or size > 127:
            tag, position = read_uvarint(buffer, position - 2)
            size, position = read_uvarint(buffer, position)
        if tag <= previous:
            raise RemoteProtocolError(f"tag {tag} after tag {previous}")
        if size > len(buffer) - position:
            raise RemoteProtocolError(f"tag {tag} claims {size} bytes behind the end")
        payloads.append((tag, position, position + size))
        position += size
        previous = tag
    return payloads, position


def skip_tags(buffer: Buffer, position: int) -> int:
    """Read a tag section in which no tag is known; return the position after it."""
    return read_tags(buffer, position)[1]


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 128:
        return UVARINTS[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string_size(size: int) -> bytes:
    """Encode the compact length (n + 1) of a long string."""
    if size - 1 > STRING_SIZE_MAX:
        raise LocalProtocolError(f"a string of {size - 1} bytes; {STRING_SIZE_MAX} is the most")
    return uvarint(size)


def int32_array(values: list[int]) -> bytes:
    count = len(values)
    if count < 16:
        return _INT32_ARRAYS[count].pack(count, *values)
    return struct.pack(f">i{count}i", count, *values)


def compact_int32_array(values: list[int]) -> bytes:
    count = len(values)
    if count < 16:
        return _COMPACT_INT32_ARRAYS[count].pack(count + 1, *values)
    return uvarint(count + 1) + struct.pack(f">{count}i", *values)


def array(code: str, values: list[int]) -> bytes:
    """Return an array of fixed-size values; `code` is their letter in the struct module."""
    return struct.pack(f">i{len(values)}{code}", len(values), *values)


def compact_array(code: str, values: list[int]) -> bytes:
    return uvarint(len(values) + 1) + struct.pack(f">{len(values)}{code}", *values)


def append_records(records: Records, parts: list[Buffer], segments: list[Segment]) -> None:
    """Add records to the message: small ones to `parts`, others as a separate segment."""
    if len(records) <= JOINED_RECORDS_MAX and isinstance(records, bytes | bytearray | memoryview):
        parts.append(records)
        return
    segments.append(b"".join(parts))
    parts.clear()
    segments.append(records)


def append_tags(parts: list[Buffer], payloads: list[tuple[int, list[Buffer]]]) -> None:
    """Write a tag section; the payloads must be in ascending order of their tags."""
    parts.append(uvarint(len(payloads)))
    for tag, payload in payloads:
        joined = b"".join(payload)
        parts += (uvarint(tag), uvarint(len(joined)), joined)


def malformed(name: str, version: int, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"{name} v{version} is malformed: {error}")


def truncated(name: str, version: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{name} v{version} is cut off")


def unknown_version(name: str, version: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{name} has no version {version}")


def null_value(field: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{field} is null or has a negative length")


def oversized(field: str, count: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{field} claims {count} elements, more than the bytes left can hold"
    )


def wrong_tag_size(name: str, tag: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"tag {tag} of {name} has not the size that it claims")


def no_such_version(name: str, version: int) -> LocalProtocolError:
    return LocalProtocolError(f"{name} has no version {version}")


def not_encodable(name: str, version: int, error: Exception) -> LocalProtocolError:
    return LocalProtocolError(f"{name} v{version} cannot be encoded: {error}")


def not_carried(field: str, version: int) -> LocalProtocolError:
    return LocalProtocolError(f"{field} is set, and version {version} does not carry it")


def null_not_carried(field: str, version: int) -> LocalProtocolError:
    return LocalProtocolError(f"{field} is None, which version {version} does not allow")


def wrong_uuid(field: str) -> LocalProtocolError:
    return LocalProtocolError(f"{field} is not 16 bytes long")
