"""What an encoded message is made of.

An encoder returns a list of segments instead of one byte string, so that records travel from the
file to the socket without passing through Python: bytes are written, sources are sent.
"""

from collections.abc import Iterable
from typing import Protocol, TypeAlias


class RecordsSource(Protocol):
    """Record batches that live elsewhere, in a file for instance. Encoders only ask the length."""

    def __len__(self) -> int: ...


Buffer: TypeAlias = bytes | bytearray | memoryview
Segment: TypeAlias = bytes | bytearray | memoryview | RecordsSource
Records: TypeAlias = bytes | bytearray | memoryview | RecordsSource


def segments_size(segments: Iterable[Segment]) -> int:
    """Return the number of bytes that these segments occupy on the wire."""
    return sum(map(len, segments))
