"""The metrics of the controllers of clusters: Kafka's names first, then ours.

One process may act for many clusters, so each family has a sample per cluster, under labels that
the process chooses; the local controller has none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from fairlead_controller.controller import Controller
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.views.cluster_summary import ClusterSummary

_KAFKA: Final = "kafka_controller_kafkacontroller"
_STATS: Final = "kafka_controller_controllerstats"


@dataclass(frozen=True, slots=True)
class ReignView:
    """One cluster's controller at the time of a scrape."""

    labels: tuple[str, ...]
    controller: Controller
    sessions: SessionServer
    summary: ClusterSummary


def reign_families(names: Sequence[str], reigns: Iterable[ReignView]) -> Iterator[Metric]:
    """Yield all families; `names` are those of `ReignView.labels`."""
    views = list(reigns)
    yield from _cluster_families(names, views)
    yield from _decision_families(names, views)
    yield from _session_families(names, views)
    yield from _store_families(names, views)


def _cluster_families(names: Sequence[str], views: list[ReignView]) -> Iterator[Metric]:
    for name, meaning, values in (
        (
            f"{_KAFKA}_activecontrollercount",
            "1 for each cluster that this process acts for.",
            [1 for _ in views],
        ),
        (
            "fairlead_controller_topics_max",
            "Most topics that the cluster may have (fairlead.max.topics).",
            [view.controller.committed.limits.topics for view in views],
        ),
        (
            "fairlead_controller_partitions_max",
            "Most partitions that the cluster may have (fairlead.max.partitions).",
            [view.controller.committed.limits.partitions for view in views],
        ),
        (
            f"{_KAFKA}_offlinepartitionscount",
            "Partitions without a leader.",
            [view.summary.counts.offline for view in views],
        ),
        (
            f"{_KAFKA}_preferredreplicaimbalancecount",
            "Partitions whose leader is not their preferred replica.",
            [view.summary.misplaced_leaders for view in views],
        ),
        (f"{_KAFKA}_globaltopiccount", "Topics.", [view.summary.topics for view in views]),
        (
            f"{_KAFKA}_globalpartitioncount",
            "Partitions.",
            [view.summary.counts.partitions for view in views],
        ),
        (
            f"{_KAFKA}_activebrokercount",
            "Brokers in service.",
            [view.summary.active_brokers for view in views],
        ),
        (
            f"{_KAFKA}_fencedbrokercount",
            "Registered brokers that are not in service.",
            [view.summary.fenced_brokers for view in views],
        ),
        (
            "fairlead_controller_partitions_under_replicated",
            "Partitions that have fewer in-sync replicas than replicas, or no leader.",
            [view.summary.counts.under_replicated for view in views],
        ),
        (
            "fairlead_controller_partitions_under_min_isr",
            "Partitions whose leaders refuse acks=all.",
            [view.summary.counts.under_min_isr for view in views],
        ),
        (
            "fairlead_controller_partitions_loss_possible",
            "Partitions whose leader may lack acknowledged records, until it has caught up.",
            [view.summary.counts.loss_possible for view in views],
        ),
    ):
        family = GaugeMetricFamily(name, meaning, labels=names)
        for view, value in zip(views, values, strict=True):
            family.add_metric(view.labels, value)
        yield family


def _decision_families(names: Sequence[str], views: list[ReignView]) -> Iterator[Metric]:
    times = SummaryMetricFamily(
        f"{_STATS}_leaderelectionrateandtimems",
        "How long decisions that changed leaders took, in ms, until brokers were told.",
        labels=names,
    )
    histogram = HistogramMetricFamily(
        "fairlead_controller_leader_election_seconds",
        "Decisions that changed leaders: from the event until brokers were told.",
        labels=names,
    )
    unclean = CounterMetricFamily(
        f"{_STATS}_uncleanleaderelections",
        "Elections of leaders that may lack acknowledged records.",
        labels=names,
    )
    decisions = CounterMetricFamily(
        "fairlead_controller_decisions", "Decisions made durable.", labels=[*names, "kind"]
    )
    refusals = CounterMetricFamily(
        "fairlead_controller_refusals", "Requests that were refused.", labels=[*names, "kind"]
    )
    broken = CounterMetricFamily(
        "fairlead_controller_broken_decisions",
        "Decisions that were stopped because they break a rule.",
        labels=[*names, "kind"],
    )
    changes = CounterMetricFamily(
        "fairlead_controller_leader_changes", "Changes of leaders.", labels=names
    )
    for view in views:
        metrics = view.controller.metrics
        elections = metrics.elections
        times.add_metric(view.labels, elections.count, elections.sum_s * 1000)
        histogram.add_metric(view.labels, elections.buckets(), elections.sum_s)
        unclean.add_metric(view.labels, metrics.unclean_elections)
        changes.add_metric(view.labels, metrics.leader_changes)
        for family, counter in (
            (decisions, metrics.decisions),
            (refusals, metrics.refusals),
            (broken, metrics.broken_decisions),
        ):
            for kind, count in sorted(counter.items()):
                family.add_metric([*view.labels, kind], count)
    yield from (times, histogram, unclean, decisions, refusals, broken, changes)


def _session_families(names: Sequence[str], views: list[ReignView]) -> Iterator[Metric]:
    sessions = GaugeMetricFamily(
        "fairlead_controller_sessions", "Brokers with a session.", labels=names
    )
    elections = SummaryMetricFamily(
        "fairlead_controller_election_seconds",
        "From the decision that a broker has failed until new leaders are durable and told.",
        labels=names,
    )
    fencings = CounterMetricFamily(
        "fairlead_controller_fencings",
        "Brokers that the controller fenced.",
        labels=[*names, "reason"],
    )
    for view in views:
        server = view.sessions
        sessions.add_metric(view.labels, server.session_count)
        elections.add_metric(view.labels, server.fencings.total(), server.fencing_seconds)
        for reason, count in sorted(server.fencings.items()):
            fencings.add_metric([*view.labels, reason], count)
    yield from (sessions, elections, fencings)


def _store_families(names: Sequence[str], views: list[ReignView]) -> Iterator[Metric]:
    writes = HistogramMetricFamily(
        "fairlead_store_write_seconds", "How long writes of one or more tables took.", labels=names
    )
    reads = HistogramMetricFamily(
        "fairlead_store_read_seconds", "How long reads of one table or of all took.", labels=names
    )
    tables = CounterMetricFamily(
        "fairlead_store_tables_written",
        "Writes of single tables, by how they ended.",
        labels=[*names, "outcome"],
    )
    for view in views:
        metrics = view.controller.metrics
        for family, times in ((writes, metrics.store_writes), (reads, metrics.store_reads)):
            family.add_metric(view.labels, times.buckets(), times.sum_s)
        for outcome, count in sorted(metrics.store_outcomes.items()):
            tables.add_metric([*view.labels, outcome], count)
    yield from (writes, reads, tables)
