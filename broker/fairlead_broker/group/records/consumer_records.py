"""Codec of the records that groups of KIP-848 keep in `__consumer_offsets`.

Pure. The bytes are Kafka's (its schemas `ConsumerGroup…Key` and `ConsumerGroup…Value`, values in
version 0, which is flexible), so that either broker reads the other's log. The key of each begins
with the number of its kind; what a group is, is in records of six kinds. Whatever the bytes are,
decoders raise ValueError and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeAlias

from fairlead_broker.group.assignors.assignment import TopicIdPartition
from fairlead_model.ids import TopicId
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.primitives import read_tags, read_uvarint, skip_tags, uvarint

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_EPOCHS_AND_STATE: Final = Struct(">iib")
_DECODE_ERRORS: Final = (struct_error, IndexError, UnicodeDecodeError, RemoteProtocolError)
_STRING_BYTES_MAX: Final = 32767
_VERSION: Final = b"\0\0"
_NO_TAGS: Final = b"\0"
_TOPIC_ID_SIZE: Final = 16
_HASH_TAG = _TIMESTAMP_TAG = _CLASSIC_TAG = _ASSIGNMENT_EPOCHS_TAG = 0


class RecordType(IntEnum):
    """The kind of a record, by the number at the beginning of its key."""

    EPOCH = 3
    """The group epoch."""
    PARTITION_METADATA = 4
    """Topics and racks, of Kafka 4.0 alone; removed where it is met."""
    MEMBER_METADATA = 5
    """The subscription of a member."""
    TARGET_METADATA = 6
    """The epoch that the target assignment was made for."""
    TARGET_MEMBER = 7
    """The target assignment of a member."""
    CURRENT_ASSIGNMENT = 8
    """The current assignment and epoch of a member."""
    REGULAR_EXPRESSION = 16
    """The topics that a pattern names."""


_NAMED_TYPES: Final = frozenset(
    {
        RecordType.MEMBER_METADATA,
        RecordType.TARGET_MEMBER,
        RecordType.CURRENT_ASSIGNMENT,
        RecordType.REGULAR_EXPRESSION,
    }
)
_TYPES: Final = {int(each): each for each in RecordType}


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has yet to give up partitions."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have yet to give up."""
    UNKNOWN = 127
    """Written by a later version of Kafka."""


_MEMBER_STATES: Final = {int(each): each for each in MemberState}


class RecordKey(NamedTuple):
    """The group of a record, and its member or pattern (`name`)."""

    type: RecordType
    group_id: str
    name: str = ""


class GroupEpoch(NamedTuple):
    """Which change of the group is the latest, and what its topics were like."""

    epoch: int
    metadata_hash: int = 0


class ClassicMember(NamedTuple):
    """What a member of the classic protocol sent when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(NamedTuple):
    """What a member sent of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    """Sorted, each once."""
    topic_regex: str
    """Empty for none."""
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMember | None = None
    """None for a member of the protocol of KIP-848."""


class TargetMetadata(NamedTuple):
    """When the target assignment was made (wall clock), and for which group epoch."""

    assignment_epoch: int
    timestamp_ms: int = 0


AssignedPartitions: TypeAlias = Mapping[TopicIdPartition, int]
"""Partitions, each with the epoch at which this member was given it (KIP-1251)."""


class CurrentAssignment(NamedTuple):
    """A member's partitions: it may read `assigned`, and has to give up `pending_revocation`."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: AssignedPartitions
    pending_revocation: AssignedPartitions


class ResolvedRegularExpression(NamedTuple):
    """The topics that a pattern named when it was looked at (wall clock)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


Target: TypeAlias = frozenset[TopicIdPartition]
RecordValue: TypeAlias = (
    GroupEpoch
    | MemberMetadata
    | TargetMetadata
    | Target
    | CurrentAssignment
    | ResolvedRegularExpression
    | None
)

ConsumerRecords: TypeAlias = Iterable[tuple[RecordKey, RecordValue]]


def encode_key(key: RecordKey) -> bytes:
    """Return the bytes of a key."""
    head = _INT16.pack(key.type) + _string(key.group_id)
    return head + _string(key.name) if key.type in _NAMED_TYPES else head


def decode_key(data: bytes) -> RecordKey | None:
    """Return what a record is about; None for one of another kind of group."""
    try:
        record_type = _TYPES.get(_INT16.unpack_from(data)[0])
        if record_type is None:
            return None
        group_id, position = _read_string(data, 2)
        name = ""
        if record_type in _NAMED_TYPES:
            name, position = _read_string(data, position)
    except _DECODE_ERRORS as error:
        raise _damaged("key", str(error)) from error
    if position != len(data):
        raise _damaged("key", f"{len(data) - position} bytes too many")
    return RecordKey(record_type, group_id, name)


def encode_value(value: RecordValue) -> bytes | None:
    """Return the bytes of a value; None, a tombstone, for None."""
    if value is None:
        return None
    if isinstance(value, frozenset):
        return _VERSION + _encode_target(value)
    if isinstance(value, CurrentAssignment):
        return _VERSION + _encode_current(value)
    if isinstance(value, MemberMetadata):
        return _VERSION + _encode_member(value)
    if isinstance(value, GroupEpoch):
        tagged = _INT64.pack(value.metadata_hash) if value.metadata_hash else None
        return _VERSION + _INT32.pack(value.epoch) + _tags(_HASH_TAG, tagged)
    if isinstance(value, TargetMetadata):
        tagged = _INT64.pack(value.timestamp_ms) if value.timestamp_ms else None
        return _VERSION + _INT32.pack(value.assignment_epoch) + _tags(_TIMESTAMP_TAG, tagged)
    head = _VERSION + _strings(sorted(value.topics))
    return head + _INT64.pack(value.version) + _INT64.pack(value.timestamp_ms) + _NO_TAGS


def decode_value(record_type: RecordType, data: bytes) -> RecordValue:
    """Return the content of a record; None for a kind that this version does not know."""
    if record_type is RecordType.PARTITION_METADATA:
        return None
    try:
        (version,) = _INT16.unpack_from(data)
        if version != 0:
            raise _damaged("value", f"version {version}, 0 is known")
        reader = _Reader(data, 2)
        value = _DECODERS[record_type](reader)
    except _DECODE_ERRORS as error:
        raise _damaged("value", str(error)) from error
    if reader.position != len(data):
        raise _damaged("value", f"{len(data) - reader.position} bytes too many")
    return value


def _encode_target(target: Target) -> bytes:
    by_topic = _by_topic(target)
    parts = [uvarint(len(by_topic) + 1)]
    for topic_id, partitions in by_topic.items():
        parts += (topic_id, _int32s(partitions), _NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _encode_current(value: CurrentAssignment) -> bytes:
    head = _EPOCHS_AND_STATE.pack(value.member_epoch, value.previous_member_epoch, value.state)
    assigned = _encode_assigned(value.assigned)
    return head + assigned + _encode_assigned(value.pending_revocation) + _NO_TAGS


def _encode_assigned(assigned: AssignedPartitions) -> bytes:
    by_topic = _by_topic(assigned)
    parts = [uvarint(len(by_topic) + 1)]
    for topic_id, partitions in by_topic.items():
        epochs = [assigned[TopicIdPartition(topic_id, each)] for each in partitions]
        tags = _tags(_ASSIGNMENT_EPOCHS_TAG, _int32s(epochs))
        parts += (topic_id, _int32s(partitions), tags)
    return b"".join(parts)


def _encode_member(value: MemberMetadata) -> bytes:
    classic = None
    if value.classic is not None:
        parts = [_INT8.pack(1), _INT32.pack(value.classic.session_timeout_ms)]
        parts.append(uvarint(len(value.classic.protocols) + 1))
        for name, metadata in value.classic.protocols:
            parts += (_compact(name), uvarint(len(metadata) + 1), metadata, _NO_TAGS)
        parts.append(_NO_TAGS)
        classic = b"".join(parts)
    return b"".join(
        (
            _nullable(value.instance_id),
            _nullable(value.rack_id),
            _compact(value.client_id),
            _compact(value.client_host),
            _strings(value.topic_names),
            _compact(value.topic_regex),
            _INT32.pack(value.rebalance_timeout_ms),
            _nullable(value.server_assignor),
            _tags(_CLASSIC_TAG, classic),
        )
    )


class _Reader:
    """Reads one value from front to back."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def number(self, form: Struct) -> int:
        value: int
        (value,) = form.unpack_from(self._data, self.position)
        self.position += form.size
        return value

    def count(self, size_min: int) -> int:
        """Length of an array whose elements have so many bytes at least; 0 for null."""
        count, self.position = read_uvarint(self._data, self.position)
        if (count - 1) * size_min > len(self._data) - self.position:
            raise _damaged("value", f"{count - 1} elements in {len(self._data)} bytes")
        return max(0, count - 1)

    def raw(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise _damaged("value", f"{size} bytes claimed, fewer are left")
        return self._data[start : self.position]

    def nullable(self) -> str | None:
        size, self.position = read_uvarint(self._data, self.position)
        return None if size == 0 else self.raw(size - 1).decode()

    def string(self) -> str:
        return self.nullable() or ""

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.count(1))]

    def int32s(self) -> tuple[int, ...]:
        count = self.count(_INT32.size)
        return Struct(f">{count}i").unpack(self.raw(count * _INT32.size))

    def tagged(self, tag: int) -> _Reader | None:
        """Pass a tag section; give a reader of the one tag that is known, None without it."""
        payloads, self.position = read_tags(self._data, self.position)
        for each, start, stop in payloads:
            if each == tag:
                return _Reader(self._data[:stop], start)
        return None

    def end(self) -> None:
        self.position = skip_tags(self._data, self.position)

    def topic_id(self) -> TopicId:
        return TopicId(self.raw(_TOPIC_ID_SIZE))


def _read_epoch(reader: _Reader) -> GroupEpoch:
    epoch = reader.number(_INT32)
    tagged = reader.tagged(_HASH_TAG)
    return GroupEpoch(epoch, 0 if tagged is None else tagged.number(_INT64))


def _read_member(reader: _Reader) -> MemberMetadata:
    instance_id, rack_id = reader.nullable(), reader.nullable()
    client_id, client_host = reader.string(), reader.string()
    topic_names = tuple(sorted(set(reader.strings())))
    topic_regex = reader.string()
    rebalance_timeout_ms = reader.number(_INT32)
    server_assignor = reader.nullable()
    tagged = reader.tagged(_CLASSIC_TAG)
    classic = None
    if tagged is not None and tagged.number(_INT8) >= 0:
        classic = _read_classic(tagged)
    return MemberMetadata(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topic_names,
        topic_regex,
        rebalance_timeout_ms,
        server_assignor,
        classic,
    )


def _read_classic(reader: _Reader) -> ClassicMember:
    session_timeout_ms = reader.number(_INT32)
    protocols = []
    for _ in range(reader.count(3)):
        name = reader.string()
        protocols.append((name, reader.raw(reader.count(1))))
        reader.end()
    reader.end()
    return ClassicMember(session_timeout_ms, tuple(protocols))


def _read_target_metadata(reader: _Reader) -> TargetMetadata:
    epoch = reader.number(_INT32)
    tagged = reader.tagged(_TIMESTAMP_TAG)
    return TargetMetadata(epoch, 0 if tagged is None else tagged.number(_INT64))


def _read_target(reader: _Reader) -> Target:
    found = []
    for _ in range(reader.count(_TOPIC_ID_SIZE + 2)):
        topic_id = reader.topic_id()
        found += [TopicIdPartition(topic_id, each) for each in reader.int32s()]
        reader.end()
    reader.end()
    return frozenset(found)


def _read_current(reader: _Reader) -> CurrentAssignment:
    member_epoch, previous_member_epoch = reader.number(_INT32), reader.number(_INT32)
    state = _MEMBER_STATES.get(reader.number(_INT8), MemberState.UNKNOWN)
    assigned = _read_assigned(reader, member_epoch)
    pending = _read_assigned(reader, member_epoch)
    reader.end()
    return CurrentAssignment(member_epoch, previous_member_epoch, state, assigned, pending)


def _read_assigned(reader: _Reader, member_epoch: int) -> dict[TopicIdPartition, int]:
    """Before KIP-1251 no partition had an epoch: the member's stands for it then."""
    assigned: dict[TopicIdPartition, int] = {}
    for _ in range(reader.count(_TOPIC_ID_SIZE + 2)):
        topic_id, partitions = reader.topic_id(), reader.int32s()
        tagged = reader.tagged(_ASSIGNMENT_EPOCHS_TAG)
        epochs = () if tagged is None else tagged.int32s()
        if len(epochs) != len(partitions):
            epochs = (max(0, member_epoch),) * len(partitions)
        for partition, epoch in zip(partitions, epochs, strict=True):
            assigned[TopicIdPartition(topic_id, partition)] = epoch
    return assigned


def _read_regular_expression(reader: _Reader) -> ResolvedRegularExpression:
    topics = frozenset(reader.strings())
    version, timestamp_ms = reader.number(_INT64), reader.number(_INT64)
    reader.end()
    return ResolvedRegularExpression(topics, version, timestamp_ms)


_DECODERS: Final[Mapping[RecordType, Callable[[_Reader], RecordValue]]] = {
    RecordType.EPOCH: _read_epoch,
    RecordType.MEMBER_METADATA: _read_member,
    RecordType.TARGET_METADATA: _read_target_metadata,
    RecordType.TARGET_MEMBER: _read_target,
    RecordType.CURRENT_ASSIGNMENT: _read_current,
    RecordType.REGULAR_EXPRESSION: _read_regular_expression,
}


def _by_topic(partitions: Target | AssignedPartitions) -> dict[TopicId, list[int]]:
    """In one order, so that a group has one form in the log."""
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return by_topic


def _damaged(what: str, reason: str) -> ValueError:
    return ValueError(f"the {what} of a group's record is damaged: {reason}")


def _encoded(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(encoded)} bytes; {_STRING_BYTES_MAX} is the most")
    return encoded


def _string(text: str) -> bytes:
    encoded = _encoded(text)
    return _INT16.pack(len(encoded)) + encoded


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, position)
    start = position + 2
    stop = start + size
    if not start <= stop <= len(data):
        raise _damaged("key", f"{size} bytes claimed, {len(data) - start} are left")
    return data[start:stop].decode(), stop


def _compact(text: str) -> bytes:
    encoded = _encoded(text)
    return uvarint(len(encoded) + 1) + encoded


def _nullable(text: str | None) -> bytes:
    return b"\0" if text is None else _compact(text)


def _strings(texts: tuple[str, ...] | list[str]) -> bytes:
    return uvarint(len(texts) + 1) + b"".join(map(_compact, texts))


def _int32s(values: list[int]) -> bytes:
    return uvarint(len(values) + 1) + Struct(f">{len(values)}i").pack(*values)


def _tags(tag: int, payload: bytes | None) -> bytes:
    if payload is None:
        return _NO_TAGS
    return b"".join((b"\1", uvarint(tag), uvarint(len(payload)), payload))
