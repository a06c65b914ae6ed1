"""The state of a cluster's partitions in a few numbers, for metrics.

Topics are immutable and few change between two summaries, so each topic's counts are cached: a
summary costs O(topics), the first summary O(partitions).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import TopicImage
from fairlead_model.partition import LeaderRecoveryState


class PartitionCounts(NamedTuple):
    """Counts of the partitions of one topic, or of all topics."""

    partitions: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    loss_possible: int = 0


NOTHING: Final = PartitionCounts()


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One summary of a controller's state."""

    counts: PartitionCounts
    topics: int
    active_brokers: int
    fenced_brokers: int
    misplaced_leaders: int
    """Partitions whose leader is not their preferred replica."""


class ClusterSummaries:
    """Summarizes one cluster repeatedly. `look` may run in a thread, one at a time."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[TopicImage, PartitionCounts]] = {}

    def look(self, state: ControllerState) -> ClusterSummary:
        """Count the topics that have changed, and add everything up."""
        known: dict[bytes, tuple[TopicImage, PartitionCounts]] = {}
        for topic in state.image.topics():
            before = self._known.get(topic.topic_id)
            if before is not None and before[0] is topic:
                known[topic.topic_id] = before
            else:
                known[topic.topic_id] = (topic, _count(topic))
        self._known = known
        brokers = state.image.brokers
        fenced = sum(broker.fenced for broker in brokers.values())
        return ClusterSummary(
            counts=_sum(counts for _, counts in known.values()),
            topics=len(known),
            active_brokers=len(brokers) - fenced,
            fenced_brokers=fenced,
            misplaced_leaders=len(state.observations.misplaced),
        )


def _count(topic: TopicImage) -> PartitionCounts:
    partitions = topic.partitions
    return PartitionCounts(
        partitions=len(partitions),
        offline=sum(not part.has_leader for part in partitions),
        under_replicated=sum(part.is_under_replicated for part in partitions),
        under_min_isr=sum(
            not part.has_leader or len(part.isr) < part.effective_min_isr for part in partitions
        ),
        loss_possible=sum(
            part.leader_recovery_state is LeaderRecoveryState.RECOVERING for part in partitions
        ),
    )


def _sum(all_counts: Iterable[PartitionCounts]) -> PartitionCounts:
    total = NOTHING
    for counts in all_counts:
        total = PartitionCounts(*(a + b for a, b in zip(total, counts, strict=True)))
    return total
