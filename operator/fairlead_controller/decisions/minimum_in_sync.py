"""The effective `min.insync.replicas` of each partition, which its record holds.

Strongest first: the topic's own value, the cluster-wide one that was set while brokers run, and
what the brokers' settings say. Brokers whose settings disagree, as while they are restarted one by
one with another value, have the highest of them in force: acknowledgements are never weaker than a
setting promised. A broker that is away counts too, because it may come back and lead.

A change of any of these renews the records in the decision that makes it, see
`membership.with_min_insync_replicas`. Where it concerns very many partitions, that decision renews
some, and others follow until none is left (`SpreadMinimum`): all at once would keep the controller
from its brokers, and from renewing its Lease, for longer than these last.
"""

from collections.abc import Mapping
from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision
from fairlead_controller.decisions.membership import with_min_insync_replicas
from fairlead_controller.decisions.state import ControllerState, MinimumSpread
from fairlead_model.cluster import CLUSTER_WIDE, ClusterImage, PartitionChanged, TopicImage

MIN_INSYNC_REPLICAS = "min.insync.replicas"
SPREAD_PER_DECISION_MAX: Final = 20_000
"""Partitions that one decision gives another minimum, besides the rest of their topic."""


def effective_min_insync_replicas(image: ClusterImage, configs: Mapping[str, str]) -> int:
    """Return the value that holds for a topic with these overrides."""
    cluster_wide = image.broker_configs.get(CLUSTER_WIDE, {})
    value = configs.get(MIN_INSYNC_REPLICAS, cluster_wide.get(MIN_INSYNC_REPLICAS))
    return static_min_insync_replicas(image) if value is None else int(value)


def static_min_insync_replicas(image: ClusterImage) -> int:
    """Return the highest value of the brokers' own settings."""
    return max((broker.min_insync_replicas for broker in image.brokers.values()), default=1)


def changed_minima(topic: TopicImage, minimum: int) -> list[PartitionChanged]:
    """Return the changes of the partitions that another minimum affects."""
    return [
        PartitionChanged(topic.topic_id, index, with_min_insync_replicas(partition, minimum))
        for index, partition in enumerate(topic.partitions)
        if partition.min_insync_replicas != minimum
    ]


def spread_minimum(draft: Draft) -> None:
    """Apply the effective minimum to topics that do not set their own; this visits every topic.

    If those are very many, note that some are left.
    """
    changes: list[PartitionChanged] = []
    image = draft.state.image
    is_complete = True
    for topic in sorted(image.topics(), key=lambda topic: topic.topic_id):
        minimum = effective_min_insync_replicas(image, topic.configs)
        changed = changed_minima(topic, minimum)
        if changed and len(changes) >= SPREAD_PER_DECISION_MAX:
            is_complete = False
            break
        changes.extend(changed)
    draft.add(*changes)
    if draft.state.is_minimum_spread != is_complete:
        draft.add(MinimumSpread(is_complete))


def decide_spread(state: ControllerState) -> Decision:
    """Give the effective minimum to more of the partitions that are left."""
    draft = Draft(state)
    spread_minimum(draft)
    return draft.decision({})
