"""The committed offsets of one group, kept as the bytes that the log has of them.

Pure. A group may have thousands of offsets and hardly ever reads them, so each stays the value of
its record (about 60 bytes) under its topic and partition, and is decoded on request. All offsets
here are committed; a commit is added when the high watermark has passed it, in the order of the
log, so that this always equals a replay of the log (R22).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from fairlead_broker.group.open_transactions import OpenTransactions, StagedOffset
from fairlead_broker.group.records.classic_records import (
    FLEXIBLE_VALUE_VERSION,
    NO_TIMESTAMP,
    OFFSET_VALUE_VERSION,
    TOPIC_ID_TAG,
    OffsetKey,
    OffsetValue,
    decode_offset_value,
    encode_key,
)
from fairlead_broker.limits import COMMITTED_OFFSET_BYTES, TOPIC_OFFSETS_BYTES
from fairlead_wire.primitives import NULL_UUID, uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairlead_broker.group.group_types import Subscriptions

_PARTITION: Final = Struct(">i")
_BARE_VALUE: Final = Struct(">hqihq")
_BARE_VALUE_OF_ID: Final = Struct(">hqiBq3s16s")
_FLEXIBLE_HEAD: Final = Struct(">hqi")
_FLEXIBLE_TAIL: Final = Struct(">q3s16s")
_TOPIC_ID_POSITION: Final = _BARE_VALUE_OF_ID.size - len(NULL_UUID)
_VALUE_HEAD: Final = Struct(">hqih")
_TIMESTAMP: Final = Struct(">q")
_EXPIRING_HEAD: Final = Struct(">hqh")
_EXPIRING_TAIL: Final = Struct(">qq")
_EXPIRING_VERSION: Final = 1
METADATA_BYTES_MAX: Final = 2**15 - 1
"""Largest length of a commit's metadata that its record can hold."""


def topic_bytes(group_id: str, topic: str) -> int:
    """Return what a topic takes that a group has offsets for, without these, about."""
    return TOPIC_OFFSETS_BYTES + len(group_id) + 2 * len(topic)


class TopicOffsets:
    """Offsets in the partitions of one topic: `values` by partition, as in the log.

    `overhead_bytes` is what it takes without them, about.
    """

    __slots__ = ("key_prefix", "overhead_bytes", "values")

    def __init__(self, group_id: str, topic: str) -> None:
        self.key_prefix = encode_key(OffsetKey(group_id, topic, 0))[: -_PARTITION.size]
        self.overhead_bytes = topic_bytes(group_id, topic)
        self.values: dict[int, bytes] = {}

    def key(self, partition: int) -> bytes:
        """Return the key of a record of this group, topic and partition."""
        return self.key_prefix + _PARTITION.pack(partition)


class GroupOffsets:
    """`topics` has an entry for each topic with a committed offset, and may have empty ones.

    `open_transactions` is None for a group without any commit in a transaction so far.
    """

    __slots__ = ("committed_bytes", "group_id", "open_transactions", "topics")

    def __init__(self, group_id: str) -> None:
        self.committed_bytes = 0
        """What `topics` takes, about; after a replay only once it is measured."""
        self.group_id = group_id
        self.topics: dict[str, TopicOffsets] = {}
        self.open_transactions: OpenTransactions | None = None

    def __len__(self) -> int:
        return sum(len(topic.values) for topic in self.topics.values())

    def __bool__(self) -> bool:
        return any(topic.values for topic in self.topics.values())

    def topic(self, name: str) -> TopicOffsets:
        """Where the offsets of a topic are kept; made if need be."""
        offsets = self.topics.get(name)
        if offsets is None:
            offsets = self.topics[name] = TopicOffsets(self.group_id, name)
            self.committed_bytes += offsets.overhead_bytes
        return offsets

    @property
    def staged_bytes(self) -> int:
        """What open transactions have staged, about."""
        return 0 if self.open_transactions is None else self.open_transactions.held_bytes

    def measure(self) -> None:
        """Count what a replay has put into `topics`."""
        self.committed_bytes = sum(
            topic.overhead_bytes
            + sum(map(len, topic.values.values()))
            + COMMITTED_OFFSET_BYTES * len(topic.values)
            for topic in self.topics.values()
        )

    def added_bytes(self, offsets: Iterable[tuple[str, int, bytes]]) -> int:
        """Return how much more room committed offsets would take with these."""
        added = 0
        new_topics: set[str] = set()
        for name, partition, value in offsets:
            topic = self.topics.get(name)
            known = None if topic is None else topic.values.get(partition)
            if topic is None and name not in new_topics:
                new_topics.add(name)
                added += topic_bytes(self.group_id, name)
            added += (
                len(value) + COMMITTED_OFFSET_BYTES if known is None else len(value) - len(known)
            )
        return added

    def find(self, topic: str, partition: int) -> OffsetValue | None:
        """Return the last committed offset; None if there is none."""
        offsets = self.topics.get(topic)
        value = None if offsets is None else offsets.values.get(partition)
        return None if value is None else decode_offset_value(value)

    def committed(self, topic: str, partition: int, value: bytes) -> None:
        """Show a commit that is below the high watermark now."""
        offsets = self.topics.get(topic)
        if offsets is None:
            offsets = self.topic(topic)
        self._put(offsets, partition, value)
        if self.open_transactions is not None:
            self.open_transactions.overtake((topic, partition))

    def _put(self, offsets: TopicOffsets, partition: int, value: bytes) -> None:
        known = offsets.values.get(partition)
        added = COMMITTED_OFFSET_BYTES if known is None else -len(known)
        self.committed_bytes += len(value) + added
        offsets.values[partition] = value

    def removed(self, topic: str, partition: int) -> None:
        """Take away an offset whose tombstone is below the high watermark now."""
        offsets = self.topics.get(topic)
        if offsets is not None:
            value = offsets.values.pop(partition, None)
            if value is not None:
                self.committed_bytes -= len(value) + COMMITTED_OFFSET_BYTES
            if not offsets.values:
                del self.topics[topic]
                self.committed_bytes -= offsets.overhead_bytes
        if self.open_transactions is not None:
            self.open_transactions.forget((topic, partition))

    def staged(
        self, producer_id: int, topic: str, partition: int, batch_offset: int, value: bytes | None
    ) -> None:
        """Keep an offset of a transaction, which is below the high watermark, until that ends."""
        if self.open_transactions is None:
            self.open_transactions = OpenTransactions()
        staged = StagedOffset(batch_offset, value)
        self.open_transactions.stage(producer_id, (topic, partition), staged)

    def transaction_ended(self, producer_id: int, *, is_commit: bool) -> None:
        """Show what a producer had staged, or forget it: the marker is below the high watermark."""
        transactions = self.open_transactions
        if transactions is None:
            return
        ended = transactions.end(producer_id)
        if is_commit:
            for place, (batch_offset, value) in ended.items():
                if value is not None:
                    topic, partition = place
                    self._put(self.topic(topic), partition, value)
                    transactions.overtake(place, batch_offset)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change what is committed (KIP-447)."""
        transactions = self.open_transactions
        return transactions is not None and (topic, partition) in transactions

    def topic_names(self) -> set[str]:
        """Return the topics that something is committed for, or staged in a transaction."""
        return {*self.topics, *(topic for topic, _ in self.unstable())}

    def topics_among(self, names: frozenset[str]) -> list[str]:
        """Return those of the names for which something is committed, or staged.

        A hundred thousand groups may be asked one after the other, and most have none of them.
        """
        if self.open_transactions is None and self.topics.keys().isdisjoint(names):
            return []
        return [each for each in self.topic_names() if each in names]

    def unstable(self) -> Iterable[tuple[str, int]]:
        """Topic and partition of every offset that is staged in an open transaction."""
        return () if self.open_transactions is None else self.open_transactions

    def partitions(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of every committed offset."""
        for name, topic in self.topics.items():
            for partition in topic.values:
                yield name, partition

    def expired(
        self, group: Subscriptions, *, now_ms: int, retention_ms: int
    ) -> list[tuple[str, int]]:
        """Offsets whose retention is over (R21). Times are wall clock."""
        has_members = bool(group.protocol_type) and not group.is_empty
        if has_members and group.topics is None:
            return []
        found = []
        for name, topic in self.topics.items():
            if has_members and group.topics and name in group.topics:
                continue
            for partition, data in topic.values.items():
                value = decode_offset_value(data)
                since_ms = value.commit_timestamp_ms
                if group.is_empty and group.protocol_type:
                    since_ms = max(since_ms, group.empty_since_ms)
                if value.expire_timestamp_ms != NO_TIMESTAMP:
                    is_expired = now_ms >= value.expire_timestamp_ms
                else:
                    is_expired = now_ms - since_ms >= retention_ms
                if is_expired:
                    found.append((name, partition))
        return found


def encode_commit(
    offset: int,
    leader_epoch: int,
    metadata: bytes,
    timestamp_ms: int,
    topic_id: bytes = NULL_UUID,
) -> bytes:
    """As `records.encode_offset_value`, in one step: each commit comes through here."""
    if topic_id != NULL_UUID:
        version = FLEXIBLE_VALUE_VERSION
        if not metadata:
            return _BARE_VALUE_OF_ID.pack(
                version, offset, leader_epoch, 1, timestamp_ms, TOPIC_ID_TAG, topic_id
            )
        return b"".join(
            (
                _FLEXIBLE_HEAD.pack(version, offset, leader_epoch),
                uvarint(len(metadata) + 1),
                metadata,
                _FLEXIBLE_TAIL.pack(timestamp_ms, TOPIC_ID_TAG, topic_id),
            )
        )
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


def topic_id_of(data: bytes) -> bytes:
    """Return for which topic of its name an offset was committed; NULL_UUID if it does not say.

    ValueError for what is no value of an offset. Most values are of our own shape without metadata,
    and need no decoding.
    """
    size = len(data)
    if size == _BARE_VALUE_OF_ID.size:
        if data[:2] == b"\0\4" and data[14] == 1 and data[23:_TOPIC_ID_POSITION] == TOPIC_ID_TAG:
            return data[_TOPIC_ID_POSITION:]
    elif size == _BARE_VALUE.size and data[:2] == b"\0\3" and data[14:16] == b"\0\0":
        return NULL_UUID
    return decode_offset_value(data).topic_id
