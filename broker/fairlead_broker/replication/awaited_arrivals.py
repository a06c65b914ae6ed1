"""Records of one log that lie elsewhere, and that readers wait for until they are here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.log.lookup import Arrival


class AwaitedArrivals:
    """What is on its way. However many readers ask for it, and how often, it is one wait."""

    __slots__ = ("_arrivals",)

    def __init__(self) -> None:
        self._arrivals: set[Arrival] = set()

    def __len__(self) -> int:
        return len(self._arrivals)

    def wait_for(self, arrival: Arrival, then: Callable[[], None]) -> None:
        """Have `then` called once `arrival` is here, unless it is waited for already."""
        # Each reader that waits asks again at every move of the partition.
        if arrival not in self._arrivals:
            self._arrivals.add(arrival)
            arrival.notify(partial(self._arrived, arrival, then))

    def _arrived(self, arrival: Arrival, then: Callable[[], None]) -> None:
        self._arrivals.discard(arrival)
        then()
