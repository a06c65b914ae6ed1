"""The changes of moving positions from ZooKeeper, or to it. This module only decides.

A position never moves back: an old consumer that commits to Kafka and to ZooKeeper
(`dual.commit.enabled`) starts at the larger of the two, and so does this command. To move back, use
`group reset`. The log's ends are those of *this* cluster, for both directions: an offset only means
the same record if both sides have the same records at the same offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fairlead_cli.client.places import Place, format_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class OutOfRange(StrEnum):
    """What to do with a position outside the log."""

    REFUSE = "refuse"
    CLAMP = "clamp"


class Step(StrEnum):
    """What to do with the position of a partition."""

    MOVE = "move"
    KEEP = "keep"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class PositionFacts:
    """A partition: its position on both sides, and the log's ends.

    `target` is None if the other side has no position. `ends` are log start and log end, None if
    the partition has no leader and so they are unknown.
    """

    place: Place
    source: int
    target: int | None
    ends: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class PlannedPosition:
    """One line of the plan. `new` is None if the position is refused."""

    facts: PositionFacts
    step: Step
    new: int | None
    note: str | None = None

    @property
    def lag(self) -> int | None:
        """Records to read afterwards; 0 for a position that stays beyond the log end."""
        if self.new is None or self.facts.ends is None:
            return None
        return max(0, self.facts.ends[1] - self.new)


def plan_position(facts: PositionFacts, out_of_range: OutOfRange) -> PlannedPosition:
    """Decide about one partition."""
    if facts.target is not None and facts.target >= facts.source:
        has_more = facts.target > facts.source
        text = f"{facts.source} is behind it: kept" if has_more else None
        return PlannedPosition(facts, Step.KEEP, facts.target, text)
    if facts.ends is None:
        text = "the partition has no leader, so that nobody knows its log"
        return PlannedPosition(facts, Step.REFUSE, None, text)
    log_start, log_end = facts.ends
    if log_start <= facts.source <= log_end:
        return PlannedPosition(facts, Step.MOVE, facts.source)
    is_below = facts.source < log_start
    where = "below the log start" if is_below else "beyond the log end"
    if out_of_range is OutOfRange.REFUSE:
        return PlannedPosition(facts, Step.REFUSE, None, f"{facts.source} is {where}")
    nearer = log_start if is_below else log_end
    if facts.target is not None and facts.target >= nearer:
        text = f"{facts.source} is {where}: kept"
        return PlannedPosition(facts, Step.KEEP, facts.target, text)
    return PlannedPosition(facts, Step.MOVE, nearer, f"{facts.source} is {where}")


def plan_positions(
    facts: Iterable[PositionFacts], out_of_range: OutOfRange
) -> tuple[PlannedPosition, ...]:
    """Return a line for each partition, in the order given."""
    return tuple(plan_position(each, out_of_range) for each in facts)


def find_refusal(lines: Sequence[PlannedPosition]) -> str | None:
    """Return why a group is not moved (a part of its positions is of no use); None if it is."""
    refused = [line for line in lines if line.step is Step.REFUSE]
    if not refused:
        return None
    places = format_places(line.facts.place for line in refused)
    first = refused[0]
    return f"{len(refused)} of {len(lines)} positions cannot be moved ({places}): {first.note}"
