"""Signed varints of the record format: zig-zag, so that small negative numbers stay short."""

from typing import Final

from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.segments import Buffer

VARINT_SIZE_MAX: Final = 5
VARLONG_SIZE_MAX: Final = 10


def read_varint(buffer: Buffer, position: int, size_max: int = VARINT_SIZE_MAX) -> tuple[int, int]:
    """Read a varint of at most `size_max` bytes; return it and the position after it.

    Raises IndexError at the end of the buffer.
    """
    byte = buffer[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = shift = 0
    end = position + size_max
    while byte > 127:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if position == end:
            raise RemoteProtocolError(f"a varint of more than {size_max} bytes")
        byte = buffer[position]
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), position + 1


def varint(value: int) -> bytes:
    """Encode a signed number of up to 64 bits."""
    folded = (value << 1) ^ (value >> 63)
    if folded < 128:
        return bytes((folded,))
    encoded = bytearray()
    while folded > 127:
        encoded.append(folded & 0x7F | 0x80)
        folded >>= 7
    encoded.append(folded)
    return bytes(encoded)
