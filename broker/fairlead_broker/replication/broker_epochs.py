"""What leaders ask of the cluster's image: which process start of a broker it knows."""

from typing import Final, Protocol

UNKNOWN_BROKER_EPOCH: Final = -1


class BrokerEpochs(Protocol):
    """What the cluster's image says of brokers: the only thing a leader asks of it."""

    def broker_epoch(self, broker_id: int) -> int:
        """Return epoch of the broker's registration, -1 if it has none."""
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
