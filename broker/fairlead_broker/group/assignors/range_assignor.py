"""The `range` assignor: consecutive partitions of each topic (Kafka's RangeAssignor, KIP-848).

Members that subscribe alike get the same partition numbers of all topics with equally many
partitions, so that they can join these topics (co-partitioning). Static members come first, so that
they keep their places when other members come and go. It does not use the earlier assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.assignors.assignment import TopicIdPartition

if TYPE_CHECKING:
    from fairlead_broker.group.assignors.assignment import Assignment, AssignmentSpec, MemberSpec


def assign_ranges(spec: AssignmentSpec) -> Assignment:
    """Cut the partitions of each topic into one range for each of its subscribers.

    The first subscribers get one partition more each where they do not divide evenly.
    """
    order = sorted(spec.members, key=lambda member_id: _place(member_id, spec.members[member_id]))
    assigned: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in order}
    for topic_id, member_ids in spec.subscribers(order).items():
        count = spec.partition_counts[topic_id]
        quota, extras = divmod(count, len(member_ids))
        start = 0
        # Those behind the last partition get nothing.
        for place, member_id in enumerate(member_ids[:count]):
            end = start + quota + (place < extras)
            assigned[member_id].extend(
                TopicIdPartition(topic_id, partition) for partition in range(start, end)
            )
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _place(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    """Order static members by instance id, then dynamic ones by member id."""
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id
