"""The `uniform` assignor: as many partitions for each as for the next (Kafka's UniformAssignor).

In a group whose members subscribe alike no member has more than one partition more than another,
and of all such assignments it is one with the fewest moves. Kafka's walks hash maps: the
promises are the same, not the result.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fairlead_broker.group.assignors.assignment import TopicIdPartition
from fairlead_broker.group.assignors.uneven_subscriptions import assign_uneven_subscriptions

if TYPE_CHECKING:
    from fairlead_broker.group.assignors.assignment import Assignment, AssignmentSpec


def assign_uniformly(spec: AssignmentSpec) -> Assignment:
    """Give each member about the same number of partitions; those it has stay where they can."""
    if spec.all_subscribed_alike():
        return _assign_alike(spec)
    return assign_uneven_subscriptions(spec)


def _assign_alike(spec: AssignmentSpec) -> Assignment:
    """Balance first: a member gives up what is above its quota, and is filled up below it.

    A member with more than the quota keeps one partition above it while any are left over. Free
    partitions are dealt in turn, so that a busy topic is spread over members.
    """
    if not spec.members:
        return {}
    topics = next(iter(spec.members.values())).subscribed_topics
    # Ordered, so that the same group gets the same assignment on every broker.
    free = {
        TopicIdPartition(topic_id, partition): None
        for topic_id in sorted(topics)
        for partition in range(spec.partition_counts[topic_id])
    }
    quota, extras = divmod(len(free), len(spec.members))
    assigned: dict[str, list[TopicIdPartition]] = {}
    for member_id, member in sorted(spec.members.items()):
        kept = [partition for partition in member.target if partition in free]
        if len(kept) > quota:
            kept.sort()
            has_extra = extras > 0
            extras -= has_extra
            del kept[quota + has_extra :]
        for partition in kept:
            del free[partition]
        assigned[member_id] = kept
    _deal(deque(free), assigned, quota)
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _deal(
    free: deque[TopicIdPartition], assigned: dict[str, list[TopicIdPartition]], quota: int
) -> None:
    """Deal in turn to those below the quota, then what is left over, one each, to those at it."""
    hungry = deque(mine for mine in assigned.values() if len(mine) < quota)
    while hungry:
        mine = hungry.popleft()
        mine.append(free.popleft())
        if len(mine) < quota:
            hungry.append(mine)
    at_quota = (mine for mine in assigned.values() if len(mine) == quota)
    for partition, mine in zip(free, at_quota, strict=False):
        mine.append(partition)
