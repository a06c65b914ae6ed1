"""The effect of losing brokers on partitions, before it happens. Pure.

It calls `decide_fencing`, which decides when brokers really die, on a copy of the state. So there
is no second set of rules that could differ from the first. If several brokers are lost together,
none of them leads at the end, in whatever order the controller notices them.
"""

from collections.abc import Collection
from dataclasses import dataclass

from fairlead_controller.decisions.events import FenceBroker, FenceReason
from fairlead_controller.decisions.registration import decide_fencing
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import ClusterImage, TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.partition import PartitionRegistration


@dataclass(frozen=True, slots=True)
class PartitionForecast:
    """One partition that has a replica on a broker that is lost."""

    topic: str
    index: int
    before: PartitionRegistration
    after: PartitionRegistration
    lost: frozenset[BrokerId]

    @property
    def changes_leader(self) -> bool:
        """True if another broker leads, or nobody does any more."""
        return self.before.leader != self.after.leader

    @property
    def loses_leader(self) -> bool:
        """True if nobody leads any more: neither reads nor writes."""
        return self.before.has_leader and not self.after.has_leader

    @property
    def falls_below_minimum(self) -> bool:
        """True if somebody leads, and from now on refuses `acks=all`."""
        return self.after.has_leader and is_below(self.after) and not is_below(self.before)

    @property
    def loses_last_copy(self) -> bool:
        """True if no other broker holds every acknowledged record: with the disks they are gone."""
        holders = {*self.before.isr, *self.before.elr}
        return bool(holders) and holders <= self.lost


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the loss of some brokers does."""

    lost: frozenset[BrokerId]
    after: ControllerState
    partitions: tuple[PartitionForecast, ...]
    """Those that have a replica on these brokers, in the order of topics' names."""
    already_without_leader: int
    already_below_minimum: int

    @property
    def is_safe(self) -> bool:
        """True if everything that is served now still is, with its minimum, and no copy is last."""
        return not any(
            each.loses_leader or each.falls_below_minimum or each.loses_last_copy
            for each in self.partitions
        )

    def leaders_after(self) -> dict[BrokerId, int]:
        """Count the leaders of each broker that is left."""
        image = self.after.image
        counts = dict.fromkeys(sorted(set(image.brokers) - self.lost), 0)
        for topic in image.topics():
            for partition in topic.partitions:
                if partition.leader in counts:
                    counts[partition.leader] += 1
        return counts


def is_below(partition: PartitionRegistration) -> bool:
    """Tell whether too few replicas are in sync for `acks=all`."""
    return len(partition.isr) < partition.effective_min_isr


def forecast_loss(state: ControllerState, lost: Collection[BrokerId]) -> Forecast:
    """Return what becomes of the partitions when brokers die together."""
    after = state
    for broker_id in sorted(lost):
        known = after.image.brokers.get(broker_id)
        if known is not None:
            death = FenceBroker(broker_id, known.broker_epoch, FenceReason.CONNECTION_REFUSED)
            after = after.apply(decide_fencing(after, death).changes)
    gone = frozenset(lost)
    partitions = [
        PartitionForecast(topic.name, index, partition, _record(after.image, topic, index), gone)
        for topic in _by_name(state.image)
        for index, partition in enumerate(topic.partitions)
        if not gone.isdisjoint(partition.replicas)
    ]
    everything = [each for topic in state.image.topics() for each in topic.partitions]
    return Forecast(
        lost=gone,
        after=after,
        partitions=tuple(partitions),
        already_without_leader=sum(not each.has_leader for each in everything),
        already_below_minimum=sum(each.has_leader and is_below(each) for each in everything),
    )


def _by_name(image: ClusterImage) -> list[TopicImage]:
    return sorted(image.topics(), key=lambda topic: topic.name)


def _record(image: ClusterImage, topic: TopicImage, index: int) -> PartitionRegistration:
    return image.topics_by_id[topic.topic_id].partitions[index]
