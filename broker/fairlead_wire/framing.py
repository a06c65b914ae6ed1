"""Splits a byte stream into frames: an int32 length, then that many bytes.

For tools, tests and clients. The broker's connections read into their own buffers.
"""

import struct
from collections.abc import Iterator
from typing import Final

from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.segments import Buffer

_LENGTH: Final = struct.Struct(">i")


class FrameDecoder:
    """Takes bytes as they come, returns complete frames.

    A claimed length allocates nothing: at most `max_size` bytes and one `feed` are kept.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._received = bytearray()

    @property
    def buffered_size(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._received)

    def feed(self, data: Buffer) -> None:
        self._received += data

    def frames(self) -> Iterator[memoryview]:
        """Yield the complete frames, without their lengths.

        Raises RemoteProtocolError for a length that is negative or above `max_size`; the rest of
        the stream cannot be read then.
        """
        while len(self._received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received)
            if not 0 <= size <= self.max_size:
                raise RemoteProtocolError(f"a frame of {size} bytes; {self.max_size} is the most")
            end = _LENGTH.size + size
            if len(self._received) < end:
                return
            frame = memoryview(bytes(self._received[_LENGTH.size : end]))
            del self._received[:end]
            yield frame
