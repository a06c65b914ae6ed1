"""Walking the batches of a segment file: by header for lookups, whole and checked for recovery.

The content of a file is not trusted: lengths are bounded by the file, and any violation of the
layout raises `CorruptSegmentError` with the position, never an index error.
"""

from collections.abc import Iterator
from typing import Final

import google_crc32c

from fairlead_broker.disk import Disk
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    BATCH_OVERHEAD,
    CRC_START,
    MAGIC_V2,
    BatchHeader,
    batch_crc,
)

HEADER_CHUNK_BYTES: Final = 16 * 1024
"""Bytes that a header walk reads at once: more than an index interval, so mostly one read."""
SCAN_CHUNK_BYTES: Final = 1024 * 1024
"""Bytes that a full scan reads at once."""
BATCH_BYTES_MAX: Final = 2**31 - 1


class CorruptSegmentError(Exception):
    """The bytes at `position` of a segment are not an intact batch."""

    def __init__(self, position: int, reason: str, *, is_cut_off: bool = False) -> None:
        """`is_cut_off`: the batch begins well but the file ends in it, as after a killed write."""
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason
        self.is_cut_off = is_cut_off


def walk_headers(
    disk: Disk, fd: int, position: int, end: int, *, chunk_bytes: int = HEADER_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch in [position, end) without large bodies."""
    chunk, chunk_start = b"", position
    unpack, make = BATCH_HEADER.unpack_from, BatchHeader._make
    while position < end:
        at = position - chunk_start
        if at + BATCH_HEADER_SIZE > len(chunk):
            chunk = disk.pread(fd, min(chunk_bytes, end - position), position)
            chunk_start, at = position, 0
            if len(chunk) < BATCH_HEADER_SIZE:
                raise CorruptSegmentError(position, f"{len(chunk)} bytes left for a batch header")
        header = make(unpack(chunk, at))
        _check_layout(header, position, end)
        yield position, header
        position += header.length + BATCH_OVERHEAD


def scan_batches(
    disk: Disk,
    fd: int,
    position: int,
    end: int,
    *,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    whole_bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield position, header and bytes of each intact batch, after checking its CRC.

    A batch larger than `whole_bytes_max` is checked in pieces and yielded without its bytes: a
    damaged length may claim the rest of the file, which would take as much memory.
    """
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        at = position - chunk_start
        if at + BATCH_HEADER_SIZE > len(chunk):
            chunk = memoryview(disk.pread(fd, min(SCAN_CHUNK_BYTES, end - position), position))
            chunk_start, at = position, 0
            if len(chunk) < BATCH_HEADER_SIZE:
                raise CorruptSegmentError(
                    position, f"{len(chunk)} bytes left for a batch header", is_cut_off=True
                )
        header = BatchHeader._make(BATCH_HEADER.unpack_from(chunk, at))
        _check_layout(header, position, end)
        size = header.size
        if size > batch_bytes_max:
            raise CorruptSegmentError(position, f"a batch of {size} bytes")
        if size > whole_bytes_max:
            _check_crc(header, _crc_in_pieces(disk, fd, position, size), position)
            yield position, header, memoryview(b"")
            position += size
            chunk, chunk_start = memoryview(b""), position
            continue
        if at + size > len(chunk):
            wanted = min(max(size, SCAN_CHUNK_BYTES), end - position)
            chunk = memoryview(disk.pread(fd, wanted, position))
            chunk_start, at = position, 0
            if len(chunk) < size:
                raise CorruptSegmentError(position, f"a batch of {size} bytes in {len(chunk)}")
        _check_crc(header, batch_crc(chunk, at, size), position)
        yield position, header, chunk[at : at + size]
        position += size


def _crc_in_pieces(disk: Disk, fd: int, position: int, size: int) -> int:
    crc, at, end = 0, position + CRC_START, position + size
    while at < end:
        piece = disk.pread(fd, min(SCAN_CHUNK_BYTES, end - at), at)
        if not piece:
            raise CorruptSegmentError(position, f"a batch of {size} bytes in {at - position}")
        crc = google_crc32c.extend(crc, piece)
        at += len(piece)
    return crc


def _check_crc(header: BatchHeader, crc: int, position: int) -> None:
    if crc != header.crc:
        raise CorruptSegmentError(position, f"CRC {crc:#010x}, header says {header.crc:#010x}")


def _check_layout(header: BatchHeader, position: int, end: int) -> None:
    if header.magic != MAGIC_V2:
        raise CorruptSegmentError(position, f"magic {header.magic} instead of {MAGIC_V2}")
    if header.length < BATCH_LENGTH_MIN or header.size > end - position:
        raise CorruptSegmentError(
            position,
            f"a batch of {header.size} bytes, {end - position} are left",
            is_cut_off=header.length >= BATCH_LENGTH_MIN,
        )
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise CorruptSegmentError(
            position, f"offsets {header.base_offset} + {header.last_offset_delta}"
        )
