"""What a coordinator needs of the broker that it is part of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fairlead_broker.clock import Clock
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.settings import Settings
    from fairlead_model.cluster import ClusterImage


class CoordinatingBroker(Protocol):
    """`Broker`, as far as coordinators know it: `image` is replaced while they run.

    Deadlines of clients use `awake_clock`.
    """

    settings: Settings
    clock: Clock
    awake_clock: Clock
    image: ClusterImage
    metrics: BrokerMetrics

    def on_unreadable(self, path: str, error: OSError) -> None:
        """Take a log offline because the disk cannot read a file of it, so that others lead."""
