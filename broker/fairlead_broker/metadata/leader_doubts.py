"""Leaders that have just hung up on us, and of whom the controller has not spoken yet.

When a broker dies, its clients ask the others at once who leads now, a few milliseconds before the
controller has decided. Whoever is told the old leader then comes back late: librdkafka asks again
after up to a second. So Metadata waits for a moment while somebody is in doubt: until the image
changes, or until the time is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import LEADER_DOUBT_MS

if TYPE_CHECKING:
    from fairlead_model.cluster import ClusterImage


class LeaderDoubts:
    """Kept by the fetchers, who notice first; times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def doubt(self, broker_id: int, now_ms: int) -> None:
        """Its connection has broken. Once: what stays broken is no news."""
        self._until_ms.setdefault(broker_id, now_ms + LEADER_DOUBT_MS)

    def settle(self, image: ClusterImage) -> None:
        """Trust the controller's new image: fenced brokers are in doubt no longer."""
        for broker_id in [each for each in self._until_ms if not image.is_live(each)]:
            del self._until_ms[broker_id]

    def trust(self, broker_id: int) -> None:
        """Trust a broker again, because it answers."""
        self._until_ms.pop(broker_id, None)

    def remaining_ms(self, image: ClusterImage, now_ms: int) -> int:
        """Return how long a reply that names leaders may still wait; 0 when nobody is in doubt."""
        return max(
            (
                until_ms - now_ms
                for broker_id, until_ms in self._until_ms.items()
                if image.is_live(broker_id)
            ),
            default=0,
        )
