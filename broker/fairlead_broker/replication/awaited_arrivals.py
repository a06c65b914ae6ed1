"""Records of a log that are stored elsewhere: readers wait until they have been copied here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.log.lookup import Arrival


class AwaitedArrivals:
    """The records under way. There is one wait, however many readers ask for them."""

    __slots__ = ("_arrivals",)

    def __init__(self) -> None:
        self._arrivals: set[Arrival] = set()

    def __len__(self) -> int:
        return len(self._arrivals)

    def wait_for(self, arrival: Arrival, then: Callable[[], None]) -> None:
        """Have `then` called once `arrival` is here, unless somebody waits for it already."""
        # A waiting reader asks again each time that the partition advances.
        if arrival not in self._arrivals:
            self._arrivals.add(arrival)
            arrival.notify(partial(self._arrived, arrival, then))

    def _arrived(self, arrival: Arrival, then: Callable[[], None]) -> None:
        self._arrivals.discard(arrival)
        then()
