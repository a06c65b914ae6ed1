"""The requests about groups to a cluster's brokers, and how they can fail."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from fairlead_operator.consumer_groups.group_sight import GroupProblem, GroupSight, Place


class BrokersUnreachableError(Exception):
    """No broker has answered in time; nothing is known, and a commit may have landed."""


class LogPoint(Enum):
    """Which offset of a log is requested."""

    START = "start"
    END = "end"


@dataclass(slots=True)
class LogOffsets:
    """Offsets of logs; each requested partition is in one of the three fields."""

    offsets: dict[Place, int] = field(default_factory=dict)
    """For a time: -1 if no record is that late."""
    unknown: set[Place] = field(default_factory=set)
    """The topic or partition does not exist."""
    failed: dict[Place, str] = field(default_factory=dict)
    """Why the offset is unknown now, for example because there is no leader."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All offsets were committed."""


@dataclass(frozen=True, slots=True)
class GroupBusy:
    """The group has members (again); no offset was committed."""


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """Offsets were not committed, or only some of them, and trying again does not help."""

    message: str


CommitOutcome = Committed | GroupBusy | CommitFailed


class GroupClient(Protocol):
    """One cluster; every call ends within a bounded time or raises BrokersUnreachableError."""

    async def look(self, group_ids: Sequence[str]) -> Mapping[str, GroupSight | GroupProblem]:
        """Read groups, each with its committed offsets and the ends of those logs."""
        ...

    async def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic that exists."""
        ...

    async def log_offsets(self, places: Collection[Place], point: LogPoint | int) -> LogOffsets:
        """Return the start or end of logs, or the first offset of a time in milliseconds."""
        ...

    async def commit(self, group_id: str, offsets: Mapping[Place, int]) -> CommitOutcome:
        """Commit offsets of a group without members.

        BrokersUnreachableError if it is unknown whether they were committed, or if the coordinator
        has to be asked again.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
