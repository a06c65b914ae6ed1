"""What is asked of a cluster's brokers about groups, and how that can go wrong."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from fairlead_operator.consumer_groups.group_sight import GroupProblem, GroupSight, Place


class BrokersUnreachableError(Exception):
    """No broker has answered in time; nothing is known, and a commit may have landed."""


class LogPoint(Enum):
    """Which offset of a log is asked for."""

    START = "start"
    END = "end"


@dataclass(slots=True)
class LogOffsets:
    """Offsets of logs; each partition that was asked for is in one of the three."""

    offsets: dict[Place, int] = field(default_factory=dict)
    """For a time, -1 where no record is that late."""
    unknown: set[Place] = field(default_factory=set)
    """There is no such topic or partition."""
    failed: dict[Place, str] = field(default_factory=dict)
    """Why it is not known now, such as for want of a leader."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All offsets were taken."""


@dataclass(frozen=True, slots=True)
class GroupBusy:
    """The group has members (again); nothing was taken."""


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """Offsets were not taken, or only some of them, and trying again does not help."""

    message: str


CommitOutcome = Committed | GroupBusy | CommitFailed


class GroupClient(Protocol):
    """One cluster; every call ends within a bounded time or raises BrokersUnreachableError."""

    async def look(self, group_ids: Sequence[str]) -> Mapping[str, GroupSight | GroupProblem]:
        """Look at groups, each with its committed offsets and the ends of those logs."""
        ...

    async def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Give the number of partitions of each topic that exists."""
        ...

    async def log_offsets(self, places: Collection[Place], point: LogPoint | int) -> LogOffsets:
        """Give the start or end of logs, or the first offset of a time in milliseconds."""
        ...

    async def commit(self, group_id: str, offsets: Mapping[Place, int]) -> CommitOutcome:
        """Set offsets of a group without members.

        BrokersUnreachableError where it is not known whether they were taken, or where the
        coordinator is to be asked again.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...
