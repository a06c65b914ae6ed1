"""The changes of a reset: old and new offset of each partition. Decides only; writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_cli.group.reset_target import (
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
)

if TYPE_CHECKING:
    from fairlead_cli.client.places import Place


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The facts about a partition.

    `committed` is None if the group has no offset; `at_time` is the first offset that is not older
    than the wanted time, None if every record is older.
    """

    place: Place
    committed: int | None
    log_start: int
    log_end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """One line of the plan. `new` is None if nothing can be done; `note` says why."""

    facts: PartitionFacts
    new: int | None
    note: str | None

    @property
    def is_change(self) -> bool:
        return self.new is not None and self.new != self.facts.committed

    @property
    def lag(self) -> int | None:
        """Records to read afterwards."""
        return None if self.new is None else self.facts.log_end - self.new


def plan_reset(target: Target, partitions: list[PartitionFacts]) -> list[PlannedOffset]:
    """Return a line for each partition, in the order given."""
    return [plan_partition(target, facts) for facts in partitions]


def plan_partition(target: Target, facts: PartitionFacts) -> PlannedOffset:
    """Decide about a partition; an offset outside the log moves to its nearer end, with a note."""
    match target:
        case ToEarliest():
            return PlannedOffset(facts, facts.log_start, None)
        case ToLatest():
            return PlannedOffset(facts, facts.log_end, None)
        case ToTime():
            if facts.at_time is None:
                return PlannedOffset(facts, facts.log_end, "no record is that new: the log end")
            return PlannedOffset(facts, facts.at_time, None)
        case ToOffset(offset):
            return clamp(facts, offset)
        case ShiftBy(count):
            if facts.committed is None:
                return PlannedOffset(facts, None, "no committed offset to shift: left alone")
            return clamp(facts, facts.committed + count)
        case ToCurrent():
            if facts.committed is None:
                return PlannedOffset(facts, facts.log_end, "no committed offset: the log end")
            return clamp(facts, facts.committed)


def clamp(facts: PartitionFacts, wanted: int) -> PlannedOffset:
    """Return the offset if the log has it, else the nearer end of the log."""
    if wanted < facts.log_start:
        return PlannedOffset(facts, facts.log_start, f"{wanted} is below the log start")
    if wanted > facts.log_end:
        return PlannedOffset(facts, facts.log_end, f"{wanted} is beyond the log end")
    return PlannedOffset(facts, wanted, None)
