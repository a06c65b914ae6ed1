"""The segments of an encoded message.

An encoder returns a list of segments instead of one byte string, so that records go from the file
to the socket without being copied by Python: bytes are written, sources are sent.
"""

from collections.abc import Iterable
from typing import Protocol, TypeAlias


class RecordsSource(Protocol):
    """Record batches that are elsewhere, for example in a file. Encoders only need the length."""

    def __len__(self) -> int: ...


Buffer: TypeAlias = bytes | bytearray | memoryview
Segment: TypeAlias = bytes | bytearray | memoryview | RecordsSource
Records: TypeAlias = bytes | bytearray | memoryview | RecordsSource


def segments_size(segments: Iterable[Segment]) -> int:
    """Return the number of bytes that these segments take on the wire."""
    return sum(map(len, segments))
