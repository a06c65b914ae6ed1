"""A file of frames that is only appended to: length, CRC, payload.

It is written through the page cache and never fsynced: it survives the end of the process, but not
a power loss. A process that is killed while it writes leaves a last frame that is cut off. Any
other damage was not caused by this class. A length that is damaged may point beyond the end, as
that of a frame that is cut off does; but then its payload is here whole, and the CRC finds it.
"""

import struct
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from fairlead_broker.disk import Disk, read_file, write_fully
from fairlead_broker.limits import JOURNAL_FRAME_BYTES_MAX
from fairlead_broker.log.files.text_files import CorruptFileError

_HEAD: Final = struct.Struct(">II")


class FrameFile:
    """An open file of frames. After an OSError the file must not be used any more."""

    def __init__(self, disk: Disk, path: str, *, size: int = 0) -> None:
        """Truncate the file to `size`, to append after that; create it if it does not exist."""
        self._disk = disk
        self.path = path
        self.size = size
        self._fd = disk.open_private(path)
        disk.truncate(self._fd, size)

    def append(self, payload: bytes) -> None:
        """Append one frame; when this returns the kernel has it."""
        frame = _HEAD.pack(len(payload), crc32(payload)) + payload
        write_fully(self._disk, self._fd, frame, self.size)
        self.size += len(frame)

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._fd)


def read_frames(disk: Disk, path: str, *, size_max: int) -> tuple[list[bytes], int]:
    """Return the frames of a file, and where the last complete one ends.

    FileNotFoundError; CorruptFileError for damage that this class cannot have caused.
    """
    try:
        content = read_file(disk, path, size_max=size_max)
    except ValueError as error:
        raise CorruptFileError(str(error)) from error
    frames, end = [], 0
    for payload in _payloads(content):
        frames.append(payload)
        end += _HEAD.size + len(payload)
    return frames, end


def _payloads(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEAD.size <= len(content):
        length, crc = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        payload = content[at : at + length]
        if len(payload) < length:
            if len(payload) > JOURNAL_FRAME_BYTES_MAX or _begins_with_whole(payload, crc):
                raise CorruptFileError(f"the length of the frame before byte {at} is damaged")
            return  # Cut off while it was written.
        if crc32(payload) != crc:
            raise CorruptFileError(f"a frame that ends at byte {at + length} is damaged")
        yield payload
        at += length


def _begins_with_whole(rest: bytes, crc: int) -> bool:
    """Tell whether a payload with this CRC ends somewhere in the bytes."""
    so_far = 0
    for at in range(len(rest)):
        so_far = crc32(rest[at : at + 1], so_far)
        if so_far == crc:
            return True
    return False
