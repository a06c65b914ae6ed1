"""What is asked of a group of the classic protocol, and what it answers.

Pure values, shared by the state machine (`classic_group`), the shell that owns the log of the
groups (`coordinator`) and the handlers. A `waiter` is whatever the shell wants back with an answer;
the state machine never looks into it. Times are monotonic milliseconds unless a name says wall.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_GENERATION = -1
NO_MEMBER = ""


class GroupState(Enum):
    """Kafka's names, as DescribeGroups and ListGroups give them."""

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
    """What the leader is told of each member, to assign partitions by."""

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
    """Empty for everybody but the leader."""
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


@dataclass(slots=True)
class GroupWrite:
    """A group record that must be committed before what depends on it is answered.

    `value` is the encoded value of `records.encode_group_value`, None for a tombstone. The shell
    appends it, and calls `ClassicGroup.written` with this very object once the outcome is known.
    `token` belongs to the state machine.
    """

    value: bytes | None
    token: Any = None


@dataclass(slots=True)
class Effects:
    """What the shell has to do, in this order: append `writes`, then send `replies`.

    A write's own replies are not in here: they come with `ClassicGroup.written`.
    """

    replies: list[tuple[Any, JoinResult | SyncResult]] = field(default_factory=list)
    writes: list[GroupWrite] = field(default_factory=list)


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

    state: GroupState
    protocol_type: str
    protocol_name: str
    members: Sequence[DescribedMember] = ()
