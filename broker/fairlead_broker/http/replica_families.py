"""Metrics of the replicas on this broker, and of the traffic of their topics.

One walk over all partitions computes the sums, in slices, so that a scrape of a broker with
thousands of partitions never delays requests. Single topics and partitions have metrics up to a
limit.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import (
    METRIC_BROKERS_MAX,
    METRIC_PARTITIONS_A_TURN,
    METRIC_PARTITIONS_MAX,
    METRIC_TOPICS_MAX,
)
from fairlead_broker.measures.exposition import label_set

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.measures.exposition import Exposition
    from fairlead_broker.replication.leader_state import LeaderState
    from fairlead_broker.replication.partition import Partition

_MANAGER: Final = "kafka_server_replicamanager"
LATE_TRANSACTION_MS: Final = 300_000
"""A transaction is late once it is open for this time longer than the maximum timeout."""
_TRAFFIC: Final = "kafka_server_brokertopicmetrics"


@dataclass(slots=True)
class ReplicaSums:
    """The results of one walk over the partitions.

    A transaction is late if its producer's last timestamp is before `late_before_ms`.
    """

    late_before_ms: int
    partitions: int = 0
    leaders: int = 0
    offline: int = 0
    without_room: int = 0
    unreadable_configs: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    producers: int = 0
    with_late_transactions: int = 0
    size: int = 0
    lag_max: int = 0
    """The largest lag of this broker's follower replicas behind a leader's high watermark."""
    follower_lags: dict[int, int] = field(default_factory=dict)
    """By follower: the largest lag of its replicas behind this broker as leader."""
    topic_sizes: dict[str, int] = field(default_factory=dict)
    topic_offsets: dict[str, int] = field(default_factory=dict)
    logs: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    """Labels, log start, log end, size, segments of the partitions with their own metrics."""

    def add(self, partition: Partition) -> None:
        """Count one replica."""
        log = partition.log
        size = log.size
        leader = partition.leader
        self.partitions += 1
        self.offline += log.is_offline
        self.without_room += log.lacks_room
        self.producers += len(log.producers)
        self.size += size
        topic = partition.topic
        self.topic_sizes[topic] = self.topic_sizes.get(topic, 0) + size
        self.topic_offsets[topic] = (
            self.topic_offsets.get(topic, 0) + log.log_end_offset - log.log_start_offset
        )
        if leader is not None:
            self._add_led(partition, leader)
        elif partition.follower is not None:
            lag = partition.follower.leader_high_watermark - log.log_end_offset
            self.lag_max = max(self.lag_max, lag)

    def _add_led(self, partition: Partition, leader: LeaderState) -> None:
        self.leaders += 1
        in_sync = len(leader.isr_state.isr)
        self.under_replicated += in_sync < len(leader.replicas)
        self.under_min_isr += not leader.has_enough_in_sync_replicas
        # As in Kafka, records without timestamps are not counted: their age is unknown.
        oldest_ms = partition.log.producers.oldest_open_ms
        self.with_late_transactions += oldest_ms is not None and 0 < oldest_ms < self.late_before_ms
        self.at_min_isr += in_sync == leader.effective_min_insync_replicas
        end = partition.log.log_end_offset
        for follower, progress in leader.followers.items():
            # A follower that has not fetched in this epoch yet may have no records.
            known = max(progress.end_offset, partition.log.log_start_offset)
            self.follower_lags[follower] = max(self.follower_lags.get(follower, 0), end - known)

    def tell(self, partition: Partition) -> None:
        """Keep the metrics of a single log."""
        log = partition.log
        self.logs.append(
            (
                label_set(topic=partition.topic, partition=partition.index),
                log.log_start_offset,
                log.log_end_offset,
                log.size,
                len(log.segments),
            )
        )


async def measure_replicas(broker: Broker) -> ReplicaSums:
    """Return sums over all partitions; other tasks run in between."""
    longest_ms = broker.settings.transaction_max_timeout_ms + LATE_TRANSACTION_MS
    sums = ReplicaSums(broker.clock.now_ms() - longest_ms)
    keys = sorted(broker.partitions)
    for number, key in enumerate(keys):
        if number and number % METRIC_PARTITIONS_A_TURN == 0:
            await asyncio.sleep(0)
        partition = broker.partitions.get(key)
        if partition is None:
            continue  # It was removed since the walk began.
        sums.add(partition)
        if number < METRIC_PARTITIONS_MAX:
            sums.tell(partition)
    # Add replicas that could not be opened.
    unopened = sum(key not in broker.partitions for key in broker.replicas.failed)
    unmade = len(broker.replicas.without_room)
    sums.partitions += unopened
    sums.offline += unopened - unmade
    sums.without_room += unmade
    sums.unreadable_configs = len(broker.replicas.unreadable_configs)
    return sums


def expose_replicas(out: Exposition, sums: ReplicaSums, metrics: BrokerMetrics) -> None:
    """Add the sums: those of Kafka's `ReplicaManager`, and Fairlead's own."""
    for name, meaning, value in (
        ("partitioncount", "Replicas on this broker.", sums.partitions),
        ("leadercount", "Partitions led by this broker.", sums.leaders),
        ("offlinereplicacount", "Replicas on this broker whose disk failed.", sums.offline),
        (
            "underreplicatedpartitions",
            "Partitions led by this broker with fewer in-sync replicas than replicas.",
            sums.under_replicated,
        ),
        (
            "underminisrpartitioncount",
            "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas.",
            sums.under_min_isr,
        ),
        (
            "atminisrpartitioncount",
            "Partitions led by this broker with exactly min.insync.replicas in-sync replicas.",
            sums.at_min_isr,
        ),
        (
            "partitionswithlatetransactionscount",
            "Partitions led by this broker with a transaction that should have ended.",
            sums.with_late_transactions,
        ),
        ("produceridcount", "Idempotent producers whose state the logs keep.", sums.producers),
    ):
        out.one(f"{_MANAGER}_{name}", "gauge", meaning, value)
    for name, meaning, value in (
        (
            "isrshrinks",
            "Replicas that this broker, as leader, took out of in-sync sets.",
            metrics.isr_shrinks,
        ),
        (
            "isrexpands",
            "Replicas that came back into in-sync sets of this broker's partitions.",
            metrics.isr_expands,
        ),
        (
            "failedisrupdates",
            "Proposed in-sync sets that the controller did not accept.",
            metrics.isr_changes_failed,
        ),
    ):
        out.one(f"{_MANAGER}_{name}_total", "counter", meaning, value)
    out.family(
        "kafka_server_replicafetchermanager_maxlag",
        "gauge",
        "Records by which this broker, as follower, is behind a leader's high watermark.",
        [(label_set(clientId="Replica"), sums.lag_max)],
    )
    out.family(
        "fairlead_follower_lag_records",
        "gauge",
        "Records by which a follower's worst replica is behind this broker, its leader.",
        [
            (label_set(follower=follower), lag)
            for follower, lag in sorted(sums.follower_lags.items())[:METRIC_BROKERS_MAX]
        ],
    )
    out.one("fairlead_partitions", "gauge", "Replicas on this broker.", sums.partitions)
    out.one("fairlead_partitions_led", "gauge", "Partitions led by this broker.", sums.leaders)
    out.one("fairlead_partitions_offline", "gauge", "Replicas whose disk failed.", sums.offline)
    meaning = "Replicas that take no records, because their disk is full."
    out.one("fairlead_partitions_without_room", "gauge", meaning, sums.without_room)
    meaning = "Topics with replicas here and a config that this release cannot read."
    out.one("fairlead_topics_with_unreadable_configs", "gauge", meaning, sums.unreadable_configs)
    out.one("fairlead_log_bytes", "gauge", "Bytes of all logs.", sums.size)


def expose_logs(out: Exposition, sums: ReplicaSums) -> None:
    """Add Kafka's `Log` for single partitions, and sums for single topics."""
    for position, name, meaning in (
        (1, "logstartoffset", "First offset of a log."),
        (2, "logendoffset", "Offset that the next record of a log will get."),
        (3, "size", "Bytes of a log."),
        (4, "numlogsegments", "Segments of a log."),
    ):
        out.family(
            f"kafka_log_log_{name}",
            "gauge",
            meaning,
            [(row[0], row[position]) for row in sums.logs],  # type: ignore[misc]
        )
    shown = sorted(sums.topic_sizes)[:METRIC_TOPICS_MAX]
    out.family(
        "fairlead_topic_log_bytes",
        "gauge",
        "Bytes of a topic's logs on this broker.",
        [(label_set(topic=topic), sums.topic_sizes[topic]) for topic in shown],
    )
    out.family(
        "fairlead_topic_offsets",
        "gauge",
        "Offsets between log start and log end, summed over partitions.",
        [(label_set(topic=topic), sums.topic_offsets[topic]) for topic in shown],
    )


def expose_traffic(out: Exposition, metrics: BrokerMetrics) -> None:
    """Add Kafka's `BrokerTopicMetrics`: all topics without a label, single topics with one."""
    traffic = metrics.traffic
    shown = sorted(traffic.topics)[:METRIC_TOPICS_MAX]
    rows = [("", traffic.total())]
    rows += [(label_set(topic=topic), traffic.topics[topic]) for topic in shown]
    for name, meaning, samples in (
        ("bytesin", "Bytes of batches appended.", [(at, t.bytes_in) for at, t in rows]),
        ("bytesout", "Bytes of records sent to consumers.", [(at, t.bytes_out) for at, t in rows]),
        ("messagesin", "Records appended.", [(at, t.messages_in) for at, t in rows]),
        (
            "totalproducerequests",
            "Batches that producers sent, refused batches included.",
            [(at, t.batches_in + t.failed_produces) for at, t in rows],
        ),
        (
            "failedproducerequests",
            "Batches that were refused.",
            [(at, t.failed_produces) for at, t in rows],
        ),
        (
            "totalfetchrequests",
            "Partitions answered in fetches of consumers.",
            [(at, t.fetches) for at, t in rows],
        ),
        (
            "failedfetchrequests",
            "Partitions answered with an error in fetches of consumers.",
            [(at, t.failed_fetches) for at, t in rows],
        ),
        (
            "replicationbytesin",
            "Bytes of records fetched from leaders.",
            [("", metrics.replicated_in_bytes)],
        ),
        (
            "replicationbytesout",
            "Bytes of records sent to followers.",
            [("", metrics.replicated_out_bytes)],
        ),
    ):
        out.family(f"{_TRAFFIC}_{name}_total", "counter", meaning, samples)
    total = rows[0][1]
    for name, meaning, value in (
        ("produced_bytes", "Bytes of batches appended.", total.bytes_in),
        ("produced_batches", "Batches appended.", total.batches_in),
        ("fetched_bytes", "Bytes of records sent to consumers.", total.bytes_out),
        ("replicated_in_bytes", "Bytes fetched from leaders.", metrics.replicated_in_bytes),
        ("replicated_out_bytes", "Bytes sent to followers.", metrics.replicated_out_bytes),
        (
            "preferred_read_replicas",
            "Partitions for which consumers were told to read from a follower in their rack.",
            metrics.preferred_read_replicas,
        ),
        (
            "follower_reads",
            "Partitions that this broker, as follower, sent to consumers.",
            metrics.follower_reads,
        ),
    ):
        out.one(f"fairlead_{name}_total", "counter", meaning, value)
