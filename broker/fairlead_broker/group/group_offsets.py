"""The committed offsets of one group, kept as the bytes that the log has of them.

Pure. A group may have thousands of offsets and hardly ever reads them, so each stays the value of
its record (about 60 bytes) under its topic and partition, and is decoded when somebody asks. What
is in here is committed; a commit comes in when the high watermark has passed it, in the order of
the log, so that this always equals a replay of the log (R22).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.records import (
    NO_TIMESTAMP,
    OFFSET_VALUE_VERSION,
    OffsetKey,
    OffsetValue,
    decode_offset_value,
    encode_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTITION: Final = Struct(">i")
_BARE_VALUE: Final = Struct(">hqihq")
_VALUE_HEAD: Final = Struct(">hqih")
_TIMESTAMP: Final = Struct(">q")
_EXPIRING_HEAD: Final = Struct(">hqh")
_EXPIRING_TAIL: Final = Struct(">qq")
_EXPIRING_VERSION: Final = 1
METADATA_BYTES_MAX: Final = 2**15 - 1
"""What the length of a commit's metadata can say in its record."""


class TopicOffsets:
    """Offsets in the partitions of one topic: `values` by partition, as in the log."""

    __slots__ = ("key_prefix", "values")

    def __init__(self, group_id: str, topic: str) -> None:
        self.key_prefix = encode_key(OffsetKey(group_id, topic, 0))[: -_PARTITION.size]
        self.values: dict[int, bytes] = {}

    def key(self, partition: int) -> bytes:
        """The key of a record of this group, topic and partition."""
        return self.key_prefix + _PARTITION.pack(partition)


class Subscriptions(NamedTuple):
    """What expiry has to know of a group: R21."""

    state: GroupState
    protocol_type: str
    """Empty for a group that never had members: standalone commits only."""
    state_since_ms: int
    """Wall clock, -1 where unknown: then only the commits' own age counts."""
    topics: frozenset[str] | None
    """What members consume; None where nobody can tell."""


class GroupOffsets:
    """`topics` has an entry for each topic with a committed offset, and may have empty ones."""

    __slots__ = ("group_id", "topics")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.topics: dict[str, TopicOffsets] = {}

    def __len__(self) -> int:
        return sum(len(topic.values) for topic in self.topics.values())

    def __bool__(self) -> bool:
        return any(topic.values for topic in self.topics.values())

    def topic(self, name: str) -> TopicOffsets:
        """Where the offsets of a topic are kept; made if need be."""
        offsets = self.topics.get(name)
        if offsets is None:
            offsets = self.topics[name] = TopicOffsets(self.group_id, name)
        return offsets

    def find(self, topic: str, partition: int) -> OffsetValue | None:
        """What was committed last; None for nothing."""
        offsets = self.topics.get(topic)
        value = None if offsets is None else offsets.values.get(partition)
        return None if value is None else decode_offset_value(value)

    def committed(self, topic: str, partition: int, value: bytes) -> None:
        """A commit is below the high watermark now."""
        offsets = self.topics.get(topic)
        if offsets is None:
            offsets = self.topic(topic)
        offsets.values[partition] = value

    def removed(self, topic: str, partition: int) -> None:
        """A tombstone is below the high watermark now."""
        offsets = self.topics.get(topic)
        if offsets is not None:
            offsets.values.pop(partition, None)
            if not offsets.values:
                del self.topics[topic]

    def partitions(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of every committed offset."""
        for name, topic in self.topics.items():
            for partition in topic.values:
                yield name, partition

    def expired(
        self, group: Subscriptions, *, now_ms: int, retention_ms: int
    ) -> list[tuple[str, int]]:
        """Offsets whose retention is over (R21). Times are wall clock."""
        is_standalone = not group.protocol_type
        is_empty = group.state is GroupState.EMPTY
        is_stable = group.state is GroupState.STABLE and group.topics is not None
        if not is_standalone and not is_empty and not is_stable:
            # Nobody can tell what members read, or whoever reads it may be about to join.
            return []
        found = []
        for name, topic in self.topics.items():
            if not is_standalone and not is_empty and group.topics and name in group.topics:
                continue
            for partition, data in topic.values.items():
                value = decode_offset_value(data)
                since_ms = value.commit_timestamp_ms
                if is_empty and not is_standalone:
                    since_ms = max(since_ms, group.state_since_ms)
                if value.expire_timestamp_ms != NO_TIMESTAMP:
                    is_expired = now_ms >= value.expire_timestamp_ms
                else:
                    is_expired = now_ms - since_ms >= retention_ms
                if is_expired:
                    found.append((name, partition))
        return found


def encode_commit(offset: int, leader_epoch: int, metadata: bytes, timestamp_ms: int) -> bytes:
    """As `records.encode_offset_value`, in one step: each commit comes through here."""
    if not metadata:
        return _BARE_VALUE.pack(OFFSET_VALUE_VERSION, offset, leader_epoch, 0, timestamp_ms)
    return (
        _VALUE_HEAD.pack(OFFSET_VALUE_VERSION, offset, leader_epoch, len(metadata))
        + metadata
        + _TIMESTAMP.pack(timestamp_ms)
    )


def encode_expiring_commit(
    offset: int, metadata: bytes, timestamp_ms: int, expire_timestamp_ms: int
) -> bytes:
    """Version 1, the one with an expiry of its own: OffsetCommit 2 to 4 may ask for it."""
    return (
        _EXPIRING_HEAD.pack(_EXPIRING_VERSION, offset, len(metadata))
        + metadata
        + _EXPIRING_TAIL.pack(timestamp_ms, expire_timestamp_ms)
    )


def is_plain_value(data: bytes) -> bool:
    """Whether this is a value of our own shape without metadata: most are, and need no decoding."""
    return len(data) == _BARE_VALUE.size and data[:2] == b"\0\3" and data[14:16] == b"\0\0"
