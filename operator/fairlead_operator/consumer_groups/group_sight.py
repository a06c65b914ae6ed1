"""A consumer group as its coordinator shows it, and its lag. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Place = tuple[str, int]
"""A topic's name and a partition."""

DEAD: Final = "Dead"
EMPTY: Final = "Empty"
ABSENT: Final = "Absent"
"""Shown if the group does not exist."""


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in the group."""

    client_id: str
    member_id: str = ""
    instance_id: str = ""
    host: str = ""
    partitions: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSight:
    """A group at one time; a group that does not exist is Dead and has no offsets."""

    state: str
    protocol: str = ""
    assignor: str = ""
    coordinator: int | None = None
    members: tuple[Member, ...] = ()
    committed: Mapping[Place, int] = field(default_factory=dict)
    log_ends: Mapping[Place, int] = field(default_factory=dict)
    """High watermarks; a partition without a leader has none."""

    @property
    def is_known(self) -> bool:
        """Whether the group exists."""
        return self.state != DEAD or bool(self.committed)

    @property
    def is_quiet(self) -> bool:
        """Whether the group has no members, so that its offsets may be set."""
        return self.state in {DEAD, EMPTY} and not self.members

    @property
    def uncommitted(self) -> int:
        """Partitions that members read without a committed offset."""
        read = {place for member in self.members for place in member.partitions}
        return len(read - self.committed.keys())


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """Why one group could not be read, while others could."""

    message: str


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a group on a topic, in records."""

    name: str
    partitions: int
    total: int
    worst: int


def lag_by_topic(sight: GroupSight) -> list[TopicLag]:
    """Return the lag of every topic with committed offsets, by name.

    A partition with an unknown end adds nothing; nor does an offset beyond the end, as after an
    unclean election.
    """
    lags: dict[str, list[int]] = {}
    for (topic, partition), offset in sight.committed.items():
        end = sight.log_ends.get((topic, partition), offset)
        lags.setdefault(topic, []).append(max(0, end - offset))
    return [
        TopicLag(topic, len(values), sum(values), max(values))
        for topic, values in sorted(lags.items())
    ]
