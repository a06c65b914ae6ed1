"""An answer that is mostly one long array, encoded part by part: 100,000 elements take 0.4 s.

`encode` then only puts together what is there.
"""

from __future__ import annotations

import copy
import struct
from typing import TYPE_CHECKING, Any, Final

from fairlead_wire.primitives import uvarint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_wire.segments import Segment

PART_MAX: Final = 100
"""Elements of a part: in flexible versions the count of so few is one byte."""
_COUNT: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"


class LongAnswer:
    """Stands for `message`, whose last field is the array; `throttle_time_ms` may be changed."""

    __slots__ = ("_array", "_head_size", "_is_flexible", "_parts", "message", "throttle_time_ms")

    def __init__(self, message: Any) -> None:
        self.message = message
        self.throttle_time_ms: int = self.message.throttle_time_ms
        self._array = _array_of(message)
        self._parts: list[bytes] = []

    def steps(self, version: int) -> Iterator[None]:
        """Encode the elements in this version, a part in each step."""
        flexible_from = self.message.FLEXIBLE_FROM
        self._is_flexible = flexible_from is not None and version >= flexible_from
        self._head_size = len(self._with([], version)) - self._tail_size
        elements = getattr(self.message, self._array)
        for at in range(0, len(elements), PART_MAX):
            part = self._with(elements[at : at + PART_MAX], version)
            self._parts.append(part[self._head_size : len(part) - self._tail_size])
            yield

    def encode(self, version: int) -> list[Segment]:
        """Return the bytes of the whole message, in the version that its parts are in."""
        head = self._with([], version)[: self._head_size]
        count = len(getattr(self.message, self._array))
        if self._is_flexible:
            head = head[:-1] + uvarint(count + 1)
        else:
            head = head[: -_COUNT.size] + _COUNT.pack(count)
        return [head, *self._parts, _NO_TAGS[: self._tail_size]]

    @property
    def _tail_size(self) -> int:
        return len(_NO_TAGS) if self._is_flexible else 0

    def _with(self, elements: list[Any], version: int) -> bytes:
        """Return the bytes of the message with these elements alone."""
        message = copy.copy(self.message)
        message.throttle_time_ms = self.throttle_time_ms
        setattr(message, self._array, elements)
        return b"".join(message.encode(version))


def is_long(answer: object) -> bool:
    """Tell whether an answer is a message that ends with a long array."""
    elements = getattr(answer, _array_of(answer), None)
    return isinstance(elements, list) and len(elements) > PART_MAX


def _array_of(message: object) -> str:
    return str(getattr(type(message), "__slots__", ("",))[-1])
