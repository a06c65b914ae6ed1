"""Which brokers shall hold the replicas of a topic's partitions. Pure.

As in the controller's own placement, other machines come first, then other racks, then the brokers
with the fewest replicas. What stays keeps its place, so preferred leaders stay where they are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True)
class Place:
    """A broker, and where it is."""

    broker_id: int
    host: str
    rack: str | None = None


class TooFewBrokersError(Exception):
    """A partition would have more replicas than there are brokers to hold them."""


@dataclass
class Assigner:
    """`places` are the brokers that may hold new replicas; `replicas` counts those of each now."""

    places: dict[int, Place]
    replicas: Counter[int] = field(default_factory=Counter)

    def moved(self, before: Sequence[int]) -> list[int]:
        """Return an assignment on these brokers alone; new replicas take the places of others."""
        after = list(before)
        for position, each in enumerate(before):
            if each not in self.places:
                after[position] = self._add(
                    {*after, *before}, [kept for kept in after if kept in self.places]
                )
                self.replicas[each] -= 1
        return after

    def resized(self, before: Sequence[int], factor: int, in_sync: Collection[int]) -> list[int]:
        """Return an assignment of so many replicas. The first one stays, and so the leader does."""
        after = list(before)
        while len(after) > factor:
            # The last of those that miss records, or else the one whose broker has most.
            leaving = max(after[1:], key=lambda each: (each not in in_sync, self.replicas[each]))
            after.remove(leaving)
            self.replicas[leaving] -= 1
        while len(after) < factor:
            after.append(self._add(after, after))
        return after

    def _add(self, taken: Collection[int], beside: Collection[int]) -> int:
        hosts = Counter(self.places[each].host for each in beside if each in self.places)
        racks = Counter(self.places[each].rack for each in beside if each in self.places)
        free = [place for broker_id, place in self.places.items() if broker_id not in taken]
        if not free:
            raise TooFewBrokersError
        best = min(
            free,
            key=lambda each: (
                hosts[each.host],
                racks[each.rack],
                self.replicas[each.broker_id],
                each.broker_id,
            ),
        )
        self.replicas[best.broker_id] += 1
        return best.broker_id
