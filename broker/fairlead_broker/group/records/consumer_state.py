"""The state in the records of one group of KIP-848: members, targets, epochs and owners.

Pure. A state is changed by records alone, the same way while it is served and when it is replayed,
so that both are alike (R22). Records come in any order that compaction leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from fairlead_broker.group.member_names import names_bytes
from fairlead_broker.group.records.consumer_records import (
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    RecordKey,
    RecordType,
    ResolvedRegularExpression,
    TargetMetadata,
)
from fairlead_broker.limits import (
    ASSIGNED_PARTITION_BYTES,
    MEMBER_OVERHEAD_BYTES,
    SUBSCRIBED_TOPIC_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from fairlead_broker.group.assignors.assignment import TopicIdPartition
    from fairlead_broker.group.records.consumer_records import RecordValue, Target

FIRST_EPOCH: Final = 1
"""Epoch of a group that nobody has joined yet (KAFKA-20268)."""
JOINING_EPOCH: Final = 0
"""Epoch of a member that joins, or joins again after it was fenced."""
LEAVING_EPOCH: Final = -1
AWAY_EPOCH: Final = -2
"""Epoch of a static member that left and will come back."""
NO_EPOCH: Final = -1
NEW_MEMBER: Final = CurrentAssignment(JOINING_EPOCH, NO_EPOCH, MemberState.STABLE, {}, {})
NO_TARGET: Final[Target] = frozenset()
_Key = TypeVar("_Key")
_UNKNOWN_METADATA: Final = MemberMetadata(None, None, "", "", (), "", NO_EPOCH, None)


class ConsumerGroupState:
    """One group. Its dictionaries are for reading; `apply` alone changes them.

    `members`, `currents` and `targets` are by member id. `holders` has for each partition the
    member that owns it or has yet to give it up: no other member may get it.
    """

    __slots__ = (
        "_pattern_counts",
        "_subscription_counts",
        "currents",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "holders",
        "instances",
        "is_logged",
        "members",
        "memory_bytes",
        "metadata_hash",
        "regular_expressions",
        "target_metadata",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.is_logged = False
        """Whether the group has an epoch in the log."""
        self.has_partition_metadata = False
        """Whether a record of Kafka 4.0 is there that is to be removed."""
        self.target_metadata = TargetMetadata(0)
        self.members: dict[str, MemberMetadata] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.targets: dict[str, Target] = {}
        self.regular_expressions: dict[str, ResolvedRegularExpression] = {}
        self._pattern_counts: dict[str, int] = {}
        """By regular expression, how many members subscribe by it: each heartbeat asks for them."""
        self._subscription_counts: dict[tuple[tuple[str, ...], str], int] = {}
        """By topics and regular expression, how many members subscribe so: each join asks."""
        self.instances: dict[str, str] = {}
        """Member id by static instance id."""
        self.holders: dict[TopicIdPartition, str] = {}
        self.memory_bytes = 0
        """Approximate memory of members and their partitions."""

    def copy(self) -> ConsumerGroupState:
        """Return a state that changes apart from this one; values are never changed in place."""
        other = ConsumerGroupState(self.group_id)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    @property
    def assignment_epoch(self) -> int:
        """Return the group epoch that the target assignment was made for."""
        return self.target_metadata.assignment_epoch

    def current(self, member_id: str) -> CurrentAssignment:
        """Return what a member has; nothing for one that is only about to join."""
        return self.currents.get(member_id, NEW_MEMBER)

    def target(self, member_id: str) -> Target:
        """Return what a member shall have."""
        return self.targets.get(member_id, NO_TARGET)

    def topic_names(self, member: MemberMetadata) -> frozenset[str]:
        """Return what a member subscribes to: a pattern that is not resolved names nothing."""
        resolved = self.regular_expressions.get(member.topic_regex)
        names = frozenset(member.topic_names)
        return names if resolved is None else names | resolved.topics

    def subscriptions(self) -> frozenset[str]:
        """Return all topics that some member subscribes to."""
        names: set[str] = set()
        for topic_names, pattern in self._subscription_counts:
            names.update(topic_names)
            resolved = self.regular_expressions.get(pattern)
            if resolved is not None:
                names |= resolved.topics
        return frozenset(names)

    def patterns(self) -> frozenset[str]:
        """Return the regular expressions that members subscribe to."""
        return frozenset(self._pattern_counts)

    def apply(self, key: RecordKey, value: RecordValue) -> None:
        """Apply a record; a value of None is a tombstone."""
        name = key.name
        if isinstance(value, CurrentAssignment) or key.type is RecordType.CURRENT_ASSIGNMENT:
            self._set_current(name, value if isinstance(value, CurrentAssignment) else None)
        elif isinstance(value, frozenset) or key.type is RecordType.TARGET_MEMBER:
            self._set_target(name, value if isinstance(value, frozenset) else None)
        elif isinstance(value, MemberMetadata) or key.type is RecordType.MEMBER_METADATA:
            self._set_member(name, value if isinstance(value, MemberMetadata) else None)
        elif isinstance(value, GroupEpoch):
            self.epoch, self.metadata_hash = value
            self.is_logged = True
        elif key.type is RecordType.EPOCH:
            self.epoch, self.metadata_hash = FIRST_EPOCH, 0
            self.is_logged = False
        elif isinstance(value, TargetMetadata) or key.type is RecordType.TARGET_METADATA:
            self.target_metadata = value if isinstance(value, TargetMetadata) else TargetMetadata(0)
        elif isinstance(value, ResolvedRegularExpression):
            self._set_regular_expression(name, value)
        elif key.type is RecordType.REGULAR_EXPRESSION:
            self._set_regular_expression(name, None)
        else:
            self.has_partition_metadata = False

    def complete_members(self) -> None:
        """Create a member from records of which compaction may have left only some."""
        for member_id in [*self.currents, *self.targets]:
            if member_id not in self.members:
                self._set_member(member_id, _UNKNOWN_METADATA)

    def tombstones_of(self, member_id: str) -> Iterator[RecordKey]:
        """Walk the keys of a member's records in the order in which they have to go."""
        for record_type, known in (
            (RecordType.CURRENT_ASSIGNMENT, self.currents),
            (RecordType.TARGET_MEMBER, self.targets),
            (RecordType.MEMBER_METADATA, self.members),
        ):
            if member_id in known:
                yield RecordKey(record_type, self.group_id, member_id)

    def tombstones(self) -> Iterator[RecordKey]:
        """Walk the keys of all records in the order in which Kafka ends a group."""
        group_id = self.group_id
        for member_id in self.currents:
            yield RecordKey(RecordType.CURRENT_ASSIGNMENT, group_id, member_id)
        for member_id in self.targets:
            yield RecordKey(RecordType.TARGET_MEMBER, group_id, member_id)
        yield RecordKey(RecordType.TARGET_METADATA, group_id)
        for member_id in self.members:
            yield RecordKey(RecordType.MEMBER_METADATA, group_id, member_id)
        for pattern in self.regular_expressions:
            yield RecordKey(RecordType.REGULAR_EXPRESSION, group_id, pattern)
        if self.has_partition_metadata:
            yield RecordKey(RecordType.PARTITION_METADATA, group_id)
        yield RecordKey(RecordType.EPOCH, group_id)

    def _set_member(self, member_id: str, member: MemberMetadata | None) -> None:
        known = self.members.pop(member_id, None)
        if known is not None:
            self.memory_bytes -= metadata_bytes(member_id, known)
            self._count_subscription(known, -1)
            if known.instance_id and self.instances.get(known.instance_id) == member_id:
                del self.instances[known.instance_id]
        if member is not None:
            self.members[member_id] = member
            self.memory_bytes += metadata_bytes(member_id, member)
            self._count_subscription(member, 1)
            if member.instance_id:
                self.instances[member.instance_id] = member_id

    def _count_subscription(self, member: MemberMetadata, change: int) -> None:
        _count(self._subscription_counts, (member.topic_names, member.topic_regex), change)
        if member.topic_regex:
            _count(self._pattern_counts, member.topic_regex, change)

    def _set_target(self, member_id: str, target: Target | None) -> None:
        self.memory_bytes -= ASSIGNED_PARTITION_BYTES * len(self.targets.pop(member_id, NO_TARGET))
        if target is not None:
            self.targets[member_id] = target
            self.memory_bytes += ASSIGNED_PARTITION_BYTES * len(target)

    def _set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        known = self.currents.pop(member_id, NEW_MEMBER)
        holders = self.holders
        for held in (known.assigned, known.pending_revocation):
            self.memory_bytes -= ASSIGNED_PARTITION_BYTES * len(held)
            for partition in held:
                if holders.get(partition) == member_id:
                    del holders[partition]
        if current is None:
            return
        self.currents[member_id] = current
        for held in (current.assigned, current.pending_revocation):
            self.memory_bytes += ASSIGNED_PARTITION_BYTES * len(held)
            for partition in held:
                holders[partition] = member_id

    def _set_regular_expression(
        self, pattern: str, resolved: ResolvedRegularExpression | None
    ) -> None:
        known = self.regular_expressions.pop(pattern, None)
        for sign, each in ((-1, known), (1, resolved)):
            if each is not None:
                size = len(pattern) + sum(map(len, each.topics)) + ASSIGNED_PARTITION_BYTES
                self.memory_bytes += sign * size
        if resolved is not None:
            self.regular_expressions[pattern] = resolved


def _count(counts: dict[_Key, int], key: _Key, change: int) -> None:
    """Change a count; one that is 0 is not there."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]


def metadata_bytes(member_id: str, member: MemberMetadata) -> int:
    """Return about how much memory a member takes without its partitions."""
    size = MEMBER_OVERHEAD_BYTES + subscription_bytes(member.topic_names, member.topic_regex)
    size += names_bytes(
        member_id, member.instance_id, member.rack_id, member.client_id, member.client_host
    )
    if member.classic is not None:
        size += sum(len(name) + len(metadata) for name, metadata in member.classic.protocols)
    return size


def subscription_bytes(names: Collection[str], pattern: str) -> int:
    """Return what topics and a pattern take that a member subscribes to, about."""
    return sum(map(len, names)) + SUBSCRIBED_TOPIC_BYTES * len(names) + len(pattern)
