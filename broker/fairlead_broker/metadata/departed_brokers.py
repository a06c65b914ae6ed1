"""Brokers that were in service a moment ago: Metadata goes on naming their addresses for a while.

They lead nothing any more. But a client that is told in one reply that a partition has moved and
that its old leader does not exist drops the one with the other: librdkafka (2.10 and later) takes
the broker apart, its partitions with it, and asks for them again up to a second later. Where the
broker coordinated a group, a producer even waits for it in `send_offsets_to_transaction`, also when
that broker is back (librdkafka's issue 5511). Brokers that restart are back within this time, so
clients keep what they know of them, too.

A broker that has just started cannot tell how long the others have been away. It names them for the
same time: else the first to come back after two have died would take the second from its clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import DEPARTED_BROKER_LISTED_MS
from fairlead_model.cluster import BrokerChanged

if TYPE_CHECKING:
    from fairlead_model.cluster import ClusterDelta, ClusterImage


class DepartedBrokers:
    """Kept by `Broker.publish`; times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def publish(
        self, before: ClusterImage, delta: ClusterDelta, after: ClusterImage, now_ms: int
    ) -> None:
        """Note who has gone out of service by a change, and who is back."""
        is_first_image = not before.brokers
        for change in delta.changes:
            if not isinstance(change, BrokerChanged):
                continue
            broker_id = change.registration.broker_id
            if after.is_live(broker_id):
                self._until_ms.pop(broker_id, None)
            elif is_first_image or before.is_live(broker_id):
                self._until_ms[broker_id] = now_ms + DEPARTED_BROKER_LISTED_MS

    def listed(self, now_ms: int) -> frozenset[int]:
        """Return whom to name still, besides those in service."""
        if not self._until_ms:
            return frozenset()
        for broker_id in [each for each, until_ms in self._until_ms.items() if until_ms <= now_ms]:
            del self._until_ms[broker_id]
        return frozenset(self._until_ms)
