"""How much each namespace uses of what its LogCluster allows it: two figures per limit."""

from collections.abc import Iterable
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead_operator.topics.namespace_rules import LimitUse
from fairlead_operator.topics.topic_resource import ClusterKey

_LABELS: Final = ("namespace", "cluster", "topic_namespace", "resource")


class NamespaceUses(Protocol):
    """What the topics of other namespaces use; `TopicScope` knows."""

    def limit_uses(self) -> Iterable[tuple[ClusterKey, str, LimitUse]]:
        """Yield cluster, namespace and use, for each limit that a namespace has."""
        ...


class TopicNamespaceMetrics(Collector):
    """Counted at each scrape: one series for each limit in a LogCluster."""

    def __init__(self, scope: NamespaceUses) -> None:
        self._scope = scope

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        used = GaugeMetricFamily(
            "fairlead_operator_topic_namespace_used",
            "Topics or partitions that a namespace has in a LogCluster that limits them.",
            labels=_LABELS,
        )
        limits = GaugeMetricFamily(
            "fairlead_operator_topic_namespace_limit",
            "Topics or partitions that a namespace may have in a LogCluster.",
            labels=_LABELS,
        )
        for cluster, namespace, use in self._scope.limit_uses():
            labels = (*cluster, namespace, use.resource)
            used.add_metric(labels, use.used)
            limits.add_metric(labels, use.limit)
        yield used
        yield limits
