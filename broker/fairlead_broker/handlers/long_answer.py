"""An answer that is mostly one long array, encoded part by part: 100,000 elements take 0.4 s.

Where few elements have a long array each, as one group with all its members, that one is encoded
part by part. `encode` then only puts together what is there.
"""

from __future__ import annotations

import copy
import struct
from typing import TYPE_CHECKING, Any, Final

from fairlead_wire.message import Message, WireStruct
from fairlead_wire.primitives import uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairlead_wire.segments import Segment

PART_MAX: Final = 100
"""Elements of a part: in flexible versions the count of so few is one byte."""
NESTED_MAX: Final = 1_000
"""Elements inside of those of a part, at any depth."""
_COUNT: Final = struct.Struct(">i")


class LongAnswer:
    """Stands for `message`, whose longest array is in parts; `throttle_time_ms` may be changed."""

    __slots__ = ("_array", "_parts", "message", "throttle_time_ms")

    def __init__(self, message: Any) -> None:
        self.message = message
        self.throttle_time_ms: int = self.message.throttle_time_ms
        self._array: _Array | None = None
        self._parts: list[bytes] = []

    def steps(self, version: int) -> Iterator[None]:
        """Encode the elements in this version, a part in each step."""
        flexible_from = self.message.FLEXIBLE_FROM
        self._array = _Array(
            self.message,
            _longest_array(self.message),
            lambda message: b"".join(message.encode(version)),
            is_flexible=flexible_from is not None and version >= flexible_from,
        )
        for part in self._array.parts():
            self._parts.append(part)
            yield

    def encode(self, version: int) -> list[Segment]:
        """Return the bytes of the whole message, in the version that its parts are in."""
        array = self._array
        if array is None:
            return self.message.encode(version)  # type: ignore[no-any-return]
        message = copy.copy(self.message)
        message.throttle_time_ms = self.throttle_time_ms
        head, tail = array.around(message)
        return [head, *self._parts, tail]


class _Array:
    """One array of `owner`, and where its elements are in what `encode` makes of the owner."""

    def __init__(
        self, owner: Any, name: str, encode: Callable[[Any], bytes], *, is_flexible: bool
    ) -> None:
        self._owner = owner
        self._name = name
        self._encode = encode
        self._is_flexible = is_flexible
        self._elements: list[Any] = getattr(owner, name)
        empty = self._with(owner, [])
        one = self._with(owner, [_hollow(self._elements[0])])
        # The counts are what differs first: 0 and 1 in four bytes, or 1 and 2 in one.
        differs_at = next(at for at, byte in enumerate(empty) if byte != one[at])
        self._count_at = differs_at if is_flexible else differs_at + 1 - _COUNT.size
        self._begin = differs_at + 1
        self._tail_size = len(empty) - self._begin

    def around(self, owner: Any) -> tuple[bytes, bytes]:
        """Return what comes before the elements, and behind them."""
        empty = self._with(owner, [])
        count = len(self._elements)
        size = uvarint(count + 1) if self._is_flexible else _COUNT.pack(count)
        return empty[: self._count_at] + size, empty[self._begin :]

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the elements."""
        part: list[Any] = []
        nested = 0
        for each in self._elements:
            size = _nested_size(each)
            if size > NESTED_MAX and (name := _longest_array(each)):
                if part:
                    yield self._bytes_of(part)
                    part, nested = [], 0
                inner = _Array(each, name, self._bytes_of_one, is_flexible=self._is_flexible)
                head, tail = inner.around(each)
                yield head
                yield from inner.parts()
                yield tail
                continue
            part.append(each)
            nested += size
            if len(part) == PART_MAX or nested > NESTED_MAX:
                yield self._bytes_of(part)
                part, nested = [], 0
        if part:
            yield self._bytes_of(part)

    def _bytes_of(self, elements: list[Any]) -> bytes:
        whole = self._with(self._owner, elements)
        return whole[self._begin : len(whole) - self._tail_size]

    def _bytes_of_one(self, element: Any) -> bytes:
        return self._bytes_of([element])

    def _with(self, owner: Any, elements: list[Any]) -> bytes:
        """Return the bytes of the owner with these elements alone."""
        changed = copy.copy(owner)
        setattr(changed, self._name, elements)
        return self._encode(changed)


def is_long(answer: object) -> bool:
    """Tell whether an answer is a message with a long array, or one inside of few elements."""
    if not isinstance(answer, Message):
        return False
    elements = getattr(answer, _longest_array(answer), None)
    if not elements:
        return False
    return len(elements) > PART_MAX or _nested_size(answer) > NESTED_MAX


def _longest_array(owner: WireStruct) -> str:
    """Return the name of the array that has most, at any depth; empty if there is none."""
    sizes = [
        (_size(elements), name)
        for name in owner.__slots__
        if (elements := getattr(owner, name)) and isinstance(elements, list)
    ]
    return max(sizes, default=(0, ""))[1]


def _size(elements: list[Any]) -> int:
    """Return how many elements these are, and have in them, or a number above NESTED_MAX."""
    size = len(elements)
    for each in elements:
        if size > NESTED_MAX:
            break
        size += _nested_size(each)
    return size


def _nested_size(element: object) -> int:
    """Return how many elements one has in it at any depth, or a number above NESTED_MAX."""
    if not isinstance(element, WireStruct):
        return 0
    size = 0
    for name in element.__slots__:
        value = getattr(element, name)
        if isinstance(value, list):
            size += _size(value)
        elif isinstance(value, WireStruct):
            size += _nested_size(value)
    return size


def _hollow(element: Any) -> Any:
    """Return an element that is quickly encoded in place of this one."""
    if not isinstance(element, WireStruct):
        return element
    hollow = copy.copy(element)
    for name in element.__slots__:
        if isinstance(getattr(element, name), list):
            setattr(hollow, name, [])
    return hollow
