"""The data that consumers of the classic protocol exchange: subscriptions and assignments.

Pure. The bytes of Kafka's ConsumerProtocolSubscription (versions 0 to 3) and
ConsumerProtocolAssignment, which brokers need where members of both protocols share a group.
Later versions only add to the end. Decoders raise ValueError for bytes that make no sense.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.limits import MEMBER_TOPICS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_VERSION_MAX: Final = 3
_OWNED_SINCE: Final = 1
_GENERATION_SINCE: Final = 2
_RACK_SINCE: Final = 3
_NO_BYTES: Final = b"\xff\xff\xff\xff"

TopicPartitions = dict[str, list[int]]


class ConsumerSubscription(NamedTuple):
    """The subscription that a consumer sends when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: TopicPartitions
    """The partitions that it still reads; none if it gives up all before it joins (eager)."""
    rack_id: str | None


class ConsumerAssignment(NamedTuple):
    """The assignment of a consumer."""

    partitions: TopicPartitions
    user_data: bytes
    """Data of an assignor for itself."""


def decode_subscription(data: bytes) -> ConsumerSubscription:
    """Return what a consumer said."""
    reader = _Reader(data)
    try:
        version = reader.int16()
        if version < 0:
            raise ValueError(f"a subscription of version {version}")
        count = reader.count(2)
        if count > MEMBER_TOPICS_MAX:
            raise ValueError(f"a subscription to {count} topics")
        topics = tuple(sorted({reader.string() for _ in range(count)}))
        reader.nullable_bytes()
        owned = reader.partitions() if version >= _OWNED_SINCE else {}
        if version >= _GENERATION_SINCE:
            reader.int32()
        rack_id = reader.nullable() if version >= _RACK_SINCE else None
    except (struct_error, UnicodeDecodeError) as error:
        raise ValueError(f"a subscription that makes no sense: {error}") from error
    return ConsumerSubscription(version, topics, owned, rack_id)


def decode_assignment(data: bytes) -> ConsumerAssignment:
    """Return what a consumer was given; nothing for no bytes."""
    if not data:
        return ConsumerAssignment({}, b"")
    reader = _Reader(data)
    try:
        if reader.int16() < 0:
            raise ValueError("an assignment of a negative version")
        partitions = reader.partitions()
        user_data = reader.nullable_bytes()
    except (struct_error, UnicodeDecodeError) as error:
        raise ValueError(f"an assignment that makes no sense: {error}") from error
    return ConsumerAssignment(partitions, user_data)


def subscription_version(data: bytes) -> int:
    """Return the version of the protocol that a consumer uses; 0 if that is unknown."""
    return max(_INT16.unpack_from(data)[0], 0) if len(data) >= _INT16.size else 0


def encode_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Return the bytes for a consumer that speaks this version; all have the same form."""
    parts = [_INT16.pack(min(version, _VERSION_MAX)), _INT32.pack(len(partitions))]
    for name in sorted(partitions):
        encoded = name.encode()
        indexes = sorted(partitions[name])
        parts += (_INT16.pack(len(encoded)), encoded)
        parts.append(Struct(f">i{len(indexes)}i").pack(len(indexes), *indexes))
    parts.append(_NO_BYTES)
    return b"".join(parts)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        value: int
        (value,) = _INT16.unpack_from(self._data, self._position)
        self._position += _INT16.size
        return value

    def int32(self) -> int:
        value: int
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position += _INT32.size
        return value

    def count(self, size_min: int) -> int:
        """Length of an array whose elements have so many bytes at least."""
        count = self.int32()
        if not 0 <= count * size_min <= len(self._data) - self._position:
            raise ValueError(f"{count} elements in {len(self._data)} bytes")
        return count

    def nullable(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._raw(size).decode()

    def string(self) -> str:
        return self.nullable() or ""

    def nullable_bytes(self) -> bytes:
        size = self.int32()
        return b"" if size < 0 else self._raw(size)

    def partitions(self) -> TopicPartitions:
        found: TopicPartitions = {}
        for _ in range(self.count(_INT16.size + _INT32.size)):
            name = self.string()
            count = self.count(_INT32.size)
            indexes = Struct(f">{count}i").unpack(self._raw(count * _INT32.size))
            found.setdefault(name, []).extend(indexes)
        return found

    def _raw(self, size: int) -> bytes:
        start, self._position = self._position, self._position + size
        if self._position > len(self._data):
            raise ValueError(f"{size} bytes claimed, fewer are left")
        return self._data[start : self._position]
