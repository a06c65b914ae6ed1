"""Codec of `__consumer_offsets`: committed offsets, and the groups of the classic protocol.

Pure. The bytes are Kafka's (its schemas OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and
GroupMetadataValue), so that Kafka's tools read our log. Keys of versions 0 and 1 name an offset,
those of version 2 a group; higher ones belong to other kinds of groups (KIP-848). Values are
written in version 3, which every tool since Kafka 2.3 reads. Replay decodes a million of these,
hence the plain functions. Whatever the bytes are, decoders raise ValueError and nothing else.
"""

from __future__ import annotations

from struct import Struct, pack
from struct import error as struct_error
from typing import Final, NamedTuple, TypeAlias

from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.primitives import NULL_UUID, read_uvarint, skip_tags, uvarint

GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
GROUP_VALUE_VERSION: Final = 3
FLEXIBLE_VALUE_VERSION: Final = 4
"""The newest version of either value that is read; its strings and arrays have compact lengths."""

NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
STRING_BYTES_MAX: Final = 32767
TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""What stands before the topic id of an offset's value: one tag, its number, and its size."""
MEMBER_BYTES_MIN: Final = 8
"""No member record is shorter in any version, which bounds what a damaged count can ask for."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET_HEAD: Final = Struct(">hqi")
_DECODE_ERRORS: Final = (struct_error, IndexError, UnicodeDecodeError, RemoteProtocolError)


class OffsetKey(NamedTuple):
    """Whose offset, and of which partition."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Which group."""

    group_id: str


class OffsetValue(NamedTuple):
    """A committed offset; wall-clock milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Only in version 1, of clients that chose a retention themselves; -1 means none."""
    topic_id: bytes = NULL_UUID
    """Only from version 4 on: which topic of its name it was committed for; zeros: nobody knows."""


class MemberRecord(NamedTuple):
    """A member of a stable group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Its metadata for the chosen assignor."""
    assignment: bytes


class GroupValue(NamedTuple):
    """A group as it was when its last rebalance was complete, or when it became empty."""

    protocol_type: str
    generation_id: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """Wall-clock milliseconds of entering the state, which expiry counts from; -1 if unknown."""
    members: tuple[MemberRecord, ...]


Key: TypeAlias = OffsetKey | GroupKey


def encode_key(key: Key) -> bytes:
    if isinstance(key, OffsetKey):
        group_id, topic, partition = key
        return b"".join((b"\0\1", _string(group_id), _string(topic), _INT32.pack(partition)))
    return b"\0\2" + _string(key.group_id)


def decode_key(data: bytes) -> Key | None:
    """Return what a record is about; None for a kind of record that this broker does not keep."""
    try:
        (version,) = _INT16.unpack_from(data)
        if version > GROUP_KEY_VERSION:
            return None
        if version < 0:
            raise _damaged("key", f"version {version}")
        group_id, position = _read_string(data, 2)
        key: Key
        if version == GROUP_KEY_VERSION:
            key = GroupKey(group_id)
        else:
            topic, position = _read_string(data, position)
            key = OffsetKey(group_id, topic, _INT32.unpack_from(data, position)[0])
            position += 4
    except _DECODE_ERRORS as error:
        raise _damaged("key", str(error)) from error
    if position != len(data):
        raise _damaged("key", f"{len(data) - position} bytes too many")
    return key


def encode_offset_value(value: OffsetValue) -> bytes:
    """In version 4 with a topic id, else in 3; neither has a place for an expiry of its own."""
    if value.topic_id != NULL_UUID:
        metadata = value.metadata.encode()
        return b"".join(
            (
                _OFFSET_HEAD.pack(FLEXIBLE_VALUE_VERSION, value.offset, value.leader_epoch),
                uvarint(len(metadata) + 1),
                metadata,
                _INT64.pack(value.commit_timestamp_ms),
                TOPIC_ID_TAG,
                value.topic_id,
            )
        )
    return b"".join(
        (
            _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, value.offset, value.leader_epoch),
            _string(value.metadata),
            _INT64.pack(value.commit_timestamp_ms),
        )
    )


def decode_offset_value(data: bytes) -> OffsetValue:
    try:
        (version,) = _INT16.unpack_from(data)
        _check_version("offset value", version)
        (offset,) = _INT64.unpack_from(data, 2)
        position = 10
        leader_epoch, expire_timestamp_ms, topic_id = NO_LEADER_EPOCH, NO_TIMESTAMP, NULL_UUID
        if version >= 3:
            (leader_epoch,) = _INT32.unpack_from(data, position)
            position += 4
        read = _read_compact_string if version >= FLEXIBLE_VALUE_VERSION else _read_string
        metadata, position = read(data, position)
        (commit_timestamp_ms,) = _INT64.unpack_from(data, position)
        position += 8
        if version == 1:
            (expire_timestamp_ms,) = _INT64.unpack_from(data, position)
            position += 8
        if version >= FLEXIBLE_VALUE_VERSION:
            topic_id = _read_topic_id(data, position)
            position = skip_tags(data, position)
    except _DECODE_ERRORS as error:
        raise _damaged("offset value", str(error)) from error
    if position != len(data):
        raise _damaged("offset value", f"{len(data) - position} bytes too many")
    return OffsetValue(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


def _read_topic_id(data: bytes, position: int) -> bytes:
    """Return what tag 0 says; tags are in order, so it is the first one."""
    count, position = read_uvarint(data, position)
    if count:
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        topic_id = data[position : position + size]
        if tag == 0 and len(topic_id) == len(NULL_UUID):
            return topic_id
    return NULL_UUID


def encode_group_value(value: GroupValue) -> bytes:
    parts = [
        _INT16.pack(GROUP_VALUE_VERSION),
        _string(value.protocol_type),
        _INT32.pack(value.generation_id),
        _nullable_string(value.protocol),
        _nullable_string(value.leader),
        pack(">qi", value.state_timestamp_ms, len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            pack(
                ">iii",
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                len(member.subscription),
            ),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def decode_group_value(data: bytes) -> GroupValue:
    try:
        (version,) = _INT16.unpack_from(data)
        _check_version("group value", version)
        value, position = _GroupReader(data, version).read()
    except _DECODE_ERRORS as error:
        raise _damaged("group value", str(error)) from error
    if position != len(data):
        raise _damaged("group value", f"{len(data) - position} bytes too many")
    return value


class _GroupReader:
    """Reads one group value; what differs between versions is decided once."""

    def __init__(self, data: bytes, version: int) -> None:
        self._data = data
        self._version = version
        self._position = 2
        self._is_flexible = version >= FLEXIBLE_VALUE_VERSION

    def read(self) -> tuple[GroupValue, int]:
        version = self._version
        protocol_type = self._string()
        generation_id = self._int32()
        protocol, leader = self._nullable(), self._nullable()
        state_timestamp_ms = NO_TIMESTAMP
        if version >= 2:
            (state_timestamp_ms,) = _INT64.unpack_from(self._data, self._position)
            self._position += 8
        count = self._size()
        if count * MEMBER_BYTES_MIN > len(self._data) - self._position:
            raise _damaged("group value", f"{count} members in {len(self._data)} bytes")
        members = tuple(self._member() for _ in range(count))
        self._end_struct()
        value = GroupValue(
            protocol_type, generation_id, protocol, leader, state_timestamp_ms, members
        )
        return value, self._position

    def _member(self) -> MemberRecord:
        version = self._version
        member_id = self._string()
        group_instance_id = self._nullable() if version >= 3 else None
        client_id, client_host = self._string(), self._string()
        rebalance_timeout_ms = self._int32() if version >= 1 else None
        session_timeout_ms = self._int32()
        subscription, assignment = self._bytes(), self._bytes()
        self._end_struct()
        return MemberRecord(
            member_id,
            group_instance_id,
            client_id,
            client_host,
            # Before there was a rebalance time-out, the session's stood for it.
            session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        )

    def _int32(self) -> int:
        value: int
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position += 4
        return value

    def _size(self) -> int:
        """Return length of an array or of bytes; 0 for null, which the schema does not have."""
        if not self._is_flexible:
            return max(0, self._int32())
        size, self._position = read_uvarint(self._data, self._position)
        return max(0, size - 1)

    def _bytes(self) -> bytes:
        size = self._size()
        start = self._position
        self._position += size
        if self._position > len(self._data):
            raise _damaged("group value", f"{size} bytes claimed, fewer are left")
        return self._data[start : self._position]

    def _string(self) -> str:
        return self._nullable() or ""

    def _nullable(self) -> str | None:
        read = _read_compact_nullable if self._is_flexible else _read_nullable
        text, self._position = read(self._data, self._position)
        return text

    def _end_struct(self) -> None:
        if self._is_flexible:
            self._position = skip_tags(self._data, self._position)


def _damaged(what: str, reason: str) -> ValueError:
    return ValueError(f"the {what} of a group's record is damaged: {reason}")


def _check_version(what: str, version: int) -> None:
    if not 0 <= version <= FLEXIBLE_VALUE_VERSION:
        raise _damaged(what, f"version {version}, 0 to {FLEXIBLE_VALUE_VERSION} are known")


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(encoded)} bytes; {STRING_BYTES_MAX} is the most")
    return _INT16.pack(len(encoded)) + encoded


def _nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else _string(text)


def _read_nullable(data: bytes, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(data, position)
    if size < 0:
        return None, position + 2
    return _text(data, position + 2, size)


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, position)
    return _text(data, position + 2, max(0, size))


def _read_compact_nullable(data: bytes, position: int) -> tuple[str | None, int]:
    size, position = read_uvarint(data, position)
    return (None, position) if size == 0 else _text(data, position, size - 1)


def _read_compact_string(data: bytes, position: int) -> tuple[str, int]:
    size, position = read_uvarint(data, position)
    return _text(data, position, max(0, size - 1))


def _text(data: bytes, start: int, size: int) -> tuple[str, int]:
    stop = start + size
    if stop > len(data):
        raise _damaged("string", f"{size} bytes claimed, {len(data) - start} are left")
    return data[start:stop].decode(), stop
