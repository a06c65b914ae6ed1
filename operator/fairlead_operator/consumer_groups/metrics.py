"""The metrics of ConsumerGroups, under the names that Kafka's exporters use."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead_operator.consumer_groups.group_scope import GroupScope
from fairlead_operator.consumer_groups.group_sight import lag_by_topic
from fairlead_operator.resources.consumer_group import TOPICS_SHOWN_MAX

GROUPS_MAX: Final = 1_000
"""Groups that have metrics, first by namespace and name of their resource."""
TOPIC_LINES_MAX: Final = 5_000
_LABELS: Final = ("namespace", "cluster", "consumergroup")


class GroupMetrics(Collector):
    """Followed groups in their last known state; a group of two resources once."""

    def __init__(
        self, scope: GroupScope, *, statuses: Callable[[], int], looks: Mapping[str, int]
    ) -> None:
        self._scope = scope
        self._statuses = statuses
        self._looks = looks

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        members = GaugeMetricFamily(
            "kafka_consumergroup_members", "Consumers in the group.", labels=_LABELS
        )
        lag_sum = GaugeMetricFamily(
            "kafka_consumergroup_lag_sum",
            "Records that the group has still to read of a topic.",
            labels=(*_LABELS, "topic"),
        )
        worst = GaugeMetricFamily(
            "fairlead_consumergroup_lag_max",
            "Records that the group has still to read of its worst partition.",
            labels=_LABELS,
        )
        told: set[tuple[str, str, str]] = set()
        lines = 0
        for key in sorted(self._scope.sights):
            followed, sight = self._scope.groups.get(key), self._scope.sights[key]
            if followed is None or not followed.resource.is_ours:
                continue
            if self._scope.cluster_of(followed.resource) is None:
                continue
            labels = (*followed.resource.cluster_key, followed.resource.group_id)
            if labels in told or len(told) >= GROUPS_MAX:
                continue
            told.add(labels)
            topics = lag_by_topic(sight)
            members.add_metric(labels, len(sight.members))
            if topics:
                worst.add_metric(labels, max(topic.worst for topic in topics))
            for topic in topics[: min(TOPICS_SHOWN_MAX, TOPIC_LINES_MAX - lines)]:
                lag_sum.add_metric((*labels, topic.name), topic.total)
                lines += 1
        yield from (members, lag_sum, worst)
        yield CounterMetricFamily(
            "fairlead_operator_consumer_group_statuses_written",
            "Statuses of ConsumerGroups written.",
            self._statuses(),
        )
        looks = CounterMetricFamily(
            "fairlead_operator_consumer_group_looks",
            "Looks at the groups of a cluster, by outcome.",
            labels=["outcome"],
        )
        for outcome, count in self._looks.items():
            looks.add_metric([outcome], count)
        yield looks
