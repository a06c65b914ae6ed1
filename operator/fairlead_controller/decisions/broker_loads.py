"""How much each broker holds, kept up to date change by change so that placement need not count.

Preferred leaders are counted rather than present ones: they are what the brokers return to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairlead_model.cluster import (
    Change,
    ClusterImage,
    PartitionChanged,
    TopicChanged,
    TopicRemoved,
    TopicState,
)
from fairlead_model.ids import BrokerId


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of one broker."""

    replicas: int = 0
    preferred_leaders: int = 0


def update_loads(
    loads: Mapping[BrokerId, BrokerLoad],
    before: ClusterImage,
    after: ClusterImage,
    changes: Iterable[Change],
) -> Mapping[BrokerId, BrokerLoad]:
    """Return the loads after changes; the cost depends on what the changes name."""
    touched: set[tuple[bytes, int]] = set()
    for change in changes:
        if isinstance(change, PartitionChanged):
            touched.add((change.topic_id, change.index))
        elif isinstance(change, TopicRemoved):
            touched.update(_all_partitions(before, change.topic_id))
        elif isinstance(change, TopicChanged) and change.header.state is TopicState.DELETING:
            touched.update(_all_partitions(before, change.header.topic_id))
    moved: dict[BrokerId, list[int]] = {}
    for topic_id, index in touched:
        held, holds = _replicas(before, topic_id, index), _replicas(after, topic_id, index)
        if held != holds:
            _count(moved, held, -1)
            _count(moved, holds, 1)
    if not moved:
        return loads
    updated = dict(loads)
    for broker_id, (replicas, leaders) in moved.items():
        known = updated.get(broker_id, BrokerLoad())
        updated[broker_id] = BrokerLoad(
            known.replicas + replicas, known.preferred_leaders + leaders
        )
    return updated


def _all_partitions(image: ClusterImage, topic_id: bytes) -> list[tuple[bytes, int]]:
    topic = image.topics_by_id.get(topic_id)
    return [] if topic is None else [(topic_id, index) for index in range(len(topic.partitions))]


def _replicas(image: ClusterImage, topic_id: bytes, index: int) -> tuple[BrokerId, ...]:
    topic = image.topic_by_id(topic_id)
    if topic is None or index >= len(topic.partitions):
        return ()
    return topic.partitions[index].replicas


def _count(moved: dict[BrokerId, list[int]], replicas: tuple[BrokerId, ...], step: int) -> None:
    for position, broker_id in enumerate(replicas):
        counts = moved.setdefault(broker_id, [0, 0])
        counts[0] += step
        counts[1] += step if position == 0 else 0
