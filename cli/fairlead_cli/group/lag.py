"""The lag of a group, by partition, and committed offsets that are out of range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_cli.client.groups import Committed, Member
    from fairlead_cli.client.places import Place


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group. None means unknown: no commit, or no leader."""

    place: Place
    committed: Committed | None
    log_start: int | None
    log_end: int | None
    member: Member | None
    problem: str | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the log end; never negative."""
        if self.committed is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.committed.offset)


def build_lags(
    committed: Mapping[Place, Committed],
    members: tuple[Member, ...],
    ends: Mapping[Place, tuple[int, int]],
    leaders: Mapping[str, Mapping[int, int]],
) -> list[PartitionLag]:
    """Return every partition that has a committed offset or a member, in order.

    `ends`: log start and log end of partitions with a leader. `leaders`: by existing topic.
    """
    owners = {place: member for member in members for place in member.partitions}
    lags = []
    for place in sorted(committed.keys() | owners.keys()):
        start, end = ends.get(place, (None, None))
        found = committed.get(place)
        problem = find_problem(place, found, ends.get(place), leaders)
        lags.append(PartitionLag(place, found, start, end, owners.get(place), problem))
    return lags


def find_problem(
    place: Place,
    committed: Committed | None,
    ends: tuple[int, int] | None,
    leaders: Mapping[str, Mapping[int, int]],
) -> str | None:
    """Return what a person must know about a partition; None if all is well."""
    if place.partition not in leaders.get(place.topic, {}):
        return "no such partition" if place.topic in leaders else "no such topic"
    if ends is None:
        return "no leader"
    if committed is None:
        return None
    start, end = ends
    if committed.offset < start:
        return f"below the log start {start}: {start - committed.offset} gone"
    if committed.offset > end:
        return f"{committed.offset - end} beyond the log end"
    return None


def total_lag(lags: list[PartitionLag]) -> int | None:
    """Return the sum of the known lags; None if none is known."""
    known = [lag.lag for lag in lags if lag.lag is not None]
    return sum(known) if known else None
