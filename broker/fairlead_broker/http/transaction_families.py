"""Metrics of the requests about transactions between brokers, and of the memory of transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.measures.exposition import Exposition


def expose_transactions(out: Exposition, metrics: BrokerMetrics, memory_bytes: int) -> None:
    """Add Kafka's `AddPartitionsToTxnManager` and `TransactionMarkerChannelManager`."""
    out.one(
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate_total",
        "counter",
        "Partitions for which no coordinator confirmed that they are in a transaction.",
        metrics.verification_failures,
    )
    out.one(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "gauge",
        "Markers of transactions that wait for their partitions to have a leader.",
        metrics.leaderless_markers,
    )
    out.one(
        "fairlead_transaction_bytes",
        "gauge",
        "Memory of all transactional ids here and of the partitions of their transactions, about.",
        memory_bytes,
    )
