"""The requests to a group, and its answers.

Pure values, shared by the protocols of groups (`classic_group`), the shell that owns the log of the
groups (`coordinator`) and the handlers. A `waiter` is whatever the shell wants back with an answer;
the state machine never looks into it. Times are monotonic milliseconds unless a name says wall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.group.assignors.assignment import TopicIdPartition
    from fairlead_broker.group.records.classic_records import MemberRecord
    from fairlead_broker.group.records.consumer_records import (
        ClassicMember,
        CurrentAssignment,
        Target,
    )
    from fairlead_broker.group.records.consumer_records import MemberMetadata as ConsumerMetadata

NO_GENERATION = -1
NO_MEMBER = ""


class GroupState(Enum):
    """States of the classic protocol, by Kafka's names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member wants in, or says again what it supports."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Name of each assignor and its subscription, in order of preference; opaque."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str
    """The id it gets if it has none: made by the shell, because it is random (client id + UUID)."""
    requires_known_member_id: bool = False
    """From JoinGroup 4 on a dynamic member must come back with the id that it was given."""
    supports_skipping_assignment: bool = False
    """From JoinGroup 9 on a static leader that comes back to a stable group may be told so."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader gets of each member, to assign partitions."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Answer to a JoinRequest; of an error only `error` and `member_id` mean anything."""

    error: ErrorCode = ErrorCode.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    member_id: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """Empty for all members except the leader."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its part; the leader brings all parts along."""

    member_id: str
    generation_id: int
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Answer to a SyncRequest."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One member of a LeaveGroup request."""

    member_id: str
    group_instance_id: str | None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat (KIP-848); or a JoinGroup to a group of that protocol."""

    member_id: str
    member_epoch: int
    """0 to join, -1 to leave, -2 to leave for a moment."""
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    """-1 where it is as before."""
    topic_names: tuple[str, ...] | None
    """Sorted, each once; None where they are as before."""
    topic_regex: str | None
    """Empty: none any more; None: as before."""
    server_assignor: str | None
    owned: frozenset[TopicIdPartition] | None
    """The member's present partitions; None if it does not send them."""
    may_describe: Callable[[str], bool]
    """Whether the member may know of a topic that its pattern names."""
    classic: ClassicMember | None = None
    """What a member of the classic protocol sends when it joins."""

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after a reply that may have been lost."""
        return (
            self.rebalance_timeout_ms >= 0
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    """Answer to a ConsumerHeartbeat; of an error only `error` means anything."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: frozenset[TopicIdPartition] | None = None
    """All partitions that it may read; None if that is as before."""


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """Answer to LeaveGroup: an error for each of the members, or one for all."""

    error: ErrorCode = ErrorCode.NONE
    codes: Sequence[ErrorCode] = ()


Offsets: TypeAlias = Sequence[tuple[str, int, bytes]]
"""Topic, partition and value of offsets that are to be committed."""
Result: TypeAlias = JoinResult | SyncResult | ConsumerHeartbeatResult | LeaveResult


class MigratingMember(NamedTuple):
    """A member of a classic group as it is now: all it said, and what it was given last."""

    record: MemberRecord
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ResolutionRequest:
    """Find the topics that match patterns, and those of them that a user may describe."""

    patterns: frozenset[str]
    may_describe: Callable[[str], bool]


@dataclass(slots=True)
class GroupWrite:
    """Records of a group that must be committed before what depends on them is answered.

    `records` are keys with values, None for a tombstone. The shell appends them together, and calls
    `written` of the group with this very object once the outcome is known. `token` is the group's.
    With a `violation`, the rule that they would break, they are not appended but have failed.
    """

    records: Sequence[tuple[bytes, bytes | None]]
    token: Any = None
    violation: str = ""
    counts_late: bool = False
    """Whether its outcome still matters when no request waits for it any longer."""


class Downgrade(NamedTuple):
    """A classic group that was one of KIP-848."""

    record: bytes
    protocols: dict[str, tuple[tuple[str, bytes], ...]]
    """All that each member joined with; the record has one of each."""


@dataclass(slots=True)
class Effects:
    """What the shell has to do, in this order: append `writes`, then send `replies`.

    A write's own replies are not in here: they come with `written` of the group.
    """

    replies: list[tuple[Any, Result]] = field(default_factory=list)
    writes: list[GroupWrite] = field(default_factory=list)
    resolution: ResolutionRequest | None = None
    """Patterns to look at, whose topics come back with `regular_expressions_resolved`."""
    downgrade: Downgrade | None = None
    """The classic group that it becomes with the write that comes with this."""


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as DescribeGroups gives it; metadata only of a stable group.

    The assignment is the last that was written: in a rebalance members read on, as a rule.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as DescribeGroups gives it."""

    state_name: str
    protocol_type: str
    protocol_name: str
    members: Sequence[DescribedMember] = ()


@dataclass(frozen=True, slots=True)
class ConsumerMemberDescription:
    """A member as ConsumerGroupDescribe gives it, as far as its log says so for certain."""

    member_id: str
    metadata: ConsumerMetadata
    current: CurrentAssignment
    target: Target


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group as ConsumerGroupDescribe gives it."""

    state_name: str
    epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerMemberDescription] = ()


class Subscriptions(NamedTuple):
    """What the expiry of offsets needs to know of a group: R21."""

    protocol_type: str
    """Empty for a group that never had members: standalone commits only."""
    is_empty: bool
    empty_since_ms: int
    """Wall clock, -1 where unknown: then only the commits' own age counts."""
    topics: frozenset[str] | None
    """Topics that members consume; None if that is unknown, or a member may be about to join."""
