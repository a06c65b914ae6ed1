"""The four codecs of record batches. For tools and lookups: the hot path does not decompress.

    gzip     plain, may have several members
    snappy   written in xerial blocks as by Java clients; raw snappy is read, too
    lz4      the frame format, independent blocks (Java clients refuse linked ones)
    zstd     plain

Callers that decompress set a limit. The output grows in steps up to it and never beyond, because a
batch of 1 MiB may claim 34 GB (zstd), and its claim is not trusted. Compressed data with very
little content is refused early, because members, frames and blocks may be empty.
"""

import struct
from enum import IntEnum
from typing import Final

import cramjam

from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.segments import Buffer

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"

_XERIAL_VERSIONS: Final = struct.Struct(">ii")
_XERIAL_HEADER_SIZE: Final = 16
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")
_TINY_BLOCKS_MAX: Final = 16 * 1024
_BLOCK_SIZE_MIN: Final = 256
"""Minimum average content if there are more blocks; the smallest of Java clients have 1 KiB."""

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_MEMBER_SIZE_MIN: Final = 20
_GZIP_MEMBERS_MAX: Final = 8 * 1024
"""A member takes at least 3 µs, even if it is empty."""

# Magic; version 1 with independent blocks and no checksums; blocks of 64 KiB; header checksum.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_SIZE: Final = 64 * 1024
_LZ4_BLOCK_LENGTH: Final = struct.Struct("<I")
_LZ4_UNCOMPRESSED: Final = 0x8000_0000
_LZ4_END: Final = bytes(4)

_PACKING_OVERHEAD_MAX: Final = 64 * 1024
"""How much longer than its content compressed data may be, in addition to a quarter of it."""
_OUTPUT_SIZE_MIN: Final = 64 * 1024
# The library's error text if the output buffer is too small; any other error means bad input.
_OUTPUT_IS_FULL: Final = "whole buffer"


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS: Final = frozenset(Codec)


class UnpackedSizeError(RemoteProtocolError):
    """Data decompresses to more than its reader accepts."""


def compress(data: Buffer, codec: Codec, level: int | None = None) -> bytes:
    """Compress the records of a batch; with Codec.NONE return them unchanged.

    `level` is a level of gzip or zstd; None is the library's default.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(data: Buffer, codec: int, *, max_size: int) -> bytes:
    """Decompress the records of a batch to at most `max_size` bytes.

    Raises RemoteProtocolError if the data is damaged, and for the codecs 5 to 7, which do not
    exist; UnpackedSizeError if the data decompresses to more.
    """
    try:
        if codec == Codec.NONE:
            return bytes(data)
        if codec in _CODECS and len(data) > max_size + max_size // 4 + _PACKING_OVERHEAD_MAX:
            raise _above_cap(codec, max_size)
        if codec == Codec.SNAPPY:
            return _decompress_snappy(data, max_size)
        if codec == Codec.GZIP and len(data) > _GZIP_MEMBERS_MAX * _GZIP_MEMBER_SIZE_MIN:
            _check_gzip_members(data)
        unpackers = {
            Codec.GZIP: cramjam.gzip.decompress_into,
            Codec.LZ4: cramjam.lz4.decompress_into,
            Codec.ZSTD: cramjam.zstd.decompress_into,
        }
        if codec not in unpackers:
            raise RemoteProtocolError(f"no codec has the number {codec}")
        output_size = min(max_size, max(_OUTPUT_SIZE_MIN, 8 * len(data)))
        while True:
            output = bytearray(output_size)
            try:
                size = unpackers[Codec(codec)](data, output)
                return bytes(memoryview(output)[:size])
            except cramjam.DecompressionError as error:
                if _OUTPUT_IS_FULL not in str(error):
                    raise
            if output_size == max_size:
                raise _above_cap(codec, max_size)
            output_size = min(max_size, output_size * 4)
    except cramjam.DecompressionError as error:
        raise RemoteProtocolError(f"damaged {Codec(codec).name} data: {error}") from error


def _check_gzip_members(data: Buffer) -> None:
    """Refuse data of very many tiny members; each begins with the same three bytes."""
    count = bytes(data).count(_GZIP_MAGIC)
    if count > _GZIP_MEMBERS_MAX and len(data) < _BLOCK_SIZE_MIN * count:
        raise RemoteProtocolError(f"damaged GZIP data: {count} members in {len(data)} bytes")


def _above_cap(codec: int, max_size: int) -> UnpackedSizeError:
    return UnpackedSizeError(f"{Codec(codec).name} data unpacks to more than {max_size} bytes")


def _compress_snappy(data: Buffer) -> bytes:
    parts = [XERIAL_MAGIC, _XERIAL_VERSIONS.pack(1, 1)]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_size, max_size)
    parts: list[bytes] = []
    position, left = _XERIAL_HEADER_SIZE, max_size
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise RemoteProtocolError("damaged SNAPPY data: a block length is cut off")
        (size,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= size <= len(view) - position:
            raise RemoteProtocolError(f"damaged SNAPPY data: a block claims {size} bytes")
        block = _decompress_snappy_block(view[position : position + size], left, max_size)
        parts.append(block)
        left -= len(block)
        position += size
        if len(parts) > _TINY_BLOCKS_MAX and max_size - left < _BLOCK_SIZE_MIN * len(parts):
            raise RemoteProtocolError(
                f"damaged SNAPPY data: {len(parts)} blocks hold {max_size - left} bytes"
            )
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, left: int, max_size: int) -> bytes:
    # This check before allocating is safe: the data has its size, and the library enforces it.
    if cramjam.snappy.decompress_raw_len(block) > left:
        raise _above_cap(Codec.SNAPPY, max_size)
    return bytes(cramjam.snappy.decompress_raw(block))


def _compress_lz4(data: Buffer) -> bytes:
    parts = [_LZ4_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        block = view[start : start + _LZ4_BLOCK_SIZE]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_LZ4_BLOCK_LENGTH.pack(len(packed)), packed)
        else:
            parts += (_LZ4_BLOCK_LENGTH.pack(len(block) | _LZ4_UNCOMPRESSED), bytes(block))
    parts.append(_LZ4_END)
    return b"".join(parts)
