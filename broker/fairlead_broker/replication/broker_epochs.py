"""What leaders ask of the cluster's image: the broker epoch that it has for a broker."""

from typing import Final, Protocol

UNKNOWN_BROKER_EPOCH: Final = -1


class BrokerEpochs(Protocol):
    """What the cluster's image says of brokers; a leader asks nothing else of it."""

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of the broker's registration, -1 if it has none."""
        ...

    def may_join(self, broker_id: int) -> bool:
        """Return True while the broker is registered, unfenced and not shutting down (R10)."""
        ...


class AnyBrokers:
    """For partitions outside a cluster: every broker may join, whatever its epoch."""

    def broker_epoch(self, broker_id: int) -> int:
        return UNKNOWN_BROKER_EPOCH

    def may_join(self, broker_id: int) -> bool:
        return True
