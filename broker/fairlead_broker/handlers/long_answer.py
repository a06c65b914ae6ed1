"""An answer that is mostly one long array, encoded part by part: tens of MB take the loop a second.

`encode` then only puts together what is there. It stands for the message that it is the bytes of.
"""

from __future__ import annotations

import copy
import struct
from typing import TYPE_CHECKING, Any, Final

from fairlead_wire.primitives import uvarint

if TYPE_CHECKING:
    from fairlead_wire.message import Message
    from fairlead_wire.segments import Segment

PART_MAX: Final = 100
"""Elements of a part: in flexible versions the count of so few is one byte."""
_COUNT: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"


class LongAnswer:
    """`throttle_time_ms` may be set until it is encoded, as that of a message."""

    __slots__ = ("_count", "_empty", "_is_flexible", "_parts", "_version", "throttle_time_ms")

    def __init__(self, empty: Message, version: int) -> None:
        """Begin with a message of which the last field is the array, and has nothing in it."""
        self._empty: Any = empty
        self._version = version
        self._is_flexible = empty.FLEXIBLE_FROM is not None and version >= empty.FLEXIBLE_FROM
        self._count = 0
        self._parts: list[bytes] = []
        self.throttle_time_ms = 0

    def add(self, part: Message, count: int) -> None:
        """Take the next elements, PART_MAX at most, in a message that is `empty` otherwise."""
        if count:
            encoded = _joined(part.encode(self._version))
            head, tail = self._around(_joined(self._empty.encode(self._version)))
            self._parts.append(encoded[head : len(encoded) - tail])
            self._count += count

    def encode(self, version: int) -> list[Segment]:
        """Return the bytes of the whole message, in the version that its parts are in."""
        empty = copy.copy(self._empty)
        empty.throttle_time_ms = self.throttle_time_ms
        encoded = _joined(empty.encode(version))
        head, tail = self._around(encoded)
        if self._is_flexible:
            counted = encoded[: head - 1] + uvarint(self._count + 1)
        else:
            counted = encoded[: head - _COUNT.size] + _COUNT.pack(self._count)
        return [counted, *self._parts, *((_NO_TAGS,) if tail else ())]

    def _around(self, empty: bytes) -> tuple[int, int]:
        """Return how many bytes stand before the elements, their count included, and behind."""
        tail = len(_NO_TAGS) if self._is_flexible else 0
        return len(empty) - tail, tail


def _joined(segments: list[Segment]) -> bytes:
    return b"".join(segments)  # type: ignore[arg-type]  # Nothing of a file is in it.
