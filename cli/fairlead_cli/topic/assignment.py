"""Assign replicas of a topic's partitions to brokers. Pure.

As in the controller's own placement, brokers on other machines come first, then in other racks,
then with the fewest replicas. Remaining replicas keep their order, so preferred leaders stay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True)
class Place:
    """A broker, and its machine and rack."""

    broker_id: int
    host: str
    rack: str | None = None


class TooFewBrokersError(Exception):
    """A partition would have more replicas than there are brokers for them."""


@dataclass
class Assigner:
    """`places` are the brokers for new replicas; `replicas` is the present number on each."""

    places: dict[int, Place]
    replicas: Counter[int] = field(default_factory=Counter)

    def moved(self, before: Sequence[int]) -> list[int]:
        """Return an assignment to these brokers only; new replicas take the places of others."""
        after = list(before)
        for position, each in enumerate(before):
            if each not in self.places:
                after[position] = self._add(
                    {*after, *before}, [kept for kept in after if kept in self.places]
                )
                self.replicas[each] -= 1
        return after

    def resized(self, before: Sequence[int], factor: int, in_sync: Collection[int]) -> list[int]:
        """Return an assignment with `factor` replicas. The first one stays, so the leader does."""
        after = list(before)
        while len(after) > factor:
            # Drop the last replica that is not in sync, or else that of the fullest broker.
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
