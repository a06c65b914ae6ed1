"""The `uniform` assignor where members subscribe to different topics.

Kafka's UniformHeterogeneousAssignmentBuilder as it is since 4.0: each member keeps what it has of
its topics, free partitions go to the subscriber with the fewest, and then partitions move from the
most to the least loaded subscriber of their topic until no two of them are two apart.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final

from fairlead_broker.group.assignors.assignment import TopicIdPartition

if TYPE_CHECKING:
    from fairlead_broker.group.assignors.assignment import Assignment, AssignmentSpec
    from fairlead_model.ids import TopicId

BALANCING_ROUNDS_MAX: Final = 16
"""Over all topics: a round may undo a little of what another topic gained."""


def assign_uneven_subscriptions(spec: AssignmentSpec) -> Assignment:
    """Give each partition to a subscriber of its topic, and balance as far as topics allow."""
    balancing = _Balancing(spec)
    balancing.place_free()
    for _ in range(BALANCING_ROUNDS_MAX):
        if not balancing.move_partitions():
            break
    return balancing.assignment()


class _Balancing:
    """`owned[topic][member]` are partition numbers, `loads[member]` how many of all topics."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self._counts = spec.partition_counts
        self._loads = dict.fromkeys(sorted(spec.members), 0)
        subscribers = spec.subscribers(list(self._loads))
        # The topics with the least room to choose come first.
        self._subscribers = {
            topic_id: subscribers[topic_id]
            for topic_id in sorted(
                subscribers,
                key=lambda topic_id: (
                    -self._counts[topic_id] / len(subscribers[topic_id]),
                    len(subscribers[topic_id]),
                    topic_id,
                ),
            )
        }
        self._owned: dict[TopicId, dict[str, list[int]]] = {
            topic_id: {} for topic_id in subscribers
        }
        self._free = {topic_id: set(range(self._counts[topic_id])) for topic_id in subscribers}
        for member_id in self._loads:
            self._keep(member_id, spec)

    def _keep(self, member_id: str, spec: AssignmentSpec) -> None:
        member = spec.members[member_id]
        for topic_id, partition in sorted(member.target):
            if topic_id in member.subscribed_topics and partition in self._free[topic_id]:
                self._free[topic_id].remove(partition)
                self._give(topic_id, partition, member_id)

    def _give(self, topic_id: TopicId, partition: int, member_id: str) -> None:
        self._owned[topic_id].setdefault(member_id, []).append(partition)
        self._loads[member_id] += 1

    def place_free(self) -> None:
        """Give each free partition to the subscriber with the fewest partitions."""
        heap: list[tuple[int, str]] = []
        of_heap: tuple[str, ...] = ()
        for topic_id, subscribers in self._subscribers.items():
            free = self._free[topic_id]
            if free and subscribers is not of_heap:
                heap = [(self._loads[member_id], member_id) for member_id in subscribers]
                heapify(heap)
                of_heap = subscribers
            for partition in sorted(free):
                load, member_id = heap[0]
                self._give(topic_id, partition, member_id)
                heapreplace(heap, (load + 1, member_id))

    def move_partitions(self) -> bool:
        """Balance each topic once; tell whether anything moved."""
        moved = False
        loads = self._loads
        least: dict[tuple[str, ...], int] = {}
        for topic_id, subscribers in self._subscribers.items():
            owned = self._owned[topic_id]
            most = max((loads[member_id] for member_id, mine in owned.items() if mine), default=0)
            if subscribers not in least:
                least[subscribers] = min(loads[member_id] for member_id in subscribers)
            if most - least[subscribers] > 1:
                self._balance(topic_id)
                least.clear()
                moved = True
        return moved

    def _balance(self, topic_id: TopicId) -> None:
        """Move partitions of one topic until no owner has two more than a subscriber.

        A member that gave one away has at least the next owner's load minus one, so it never gets
        one. In the same way a member that got one never gives one away. Each heap may be wrong
        about these members.
        """
        loads, owned = self._loads, self._owned[topic_id]
        least = [(loads[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapify(least)
        most = [(-loads[member_id], member_id) for member_id, mine in owned.items() if mine]
        heapify(most)
        while most and -most[0][0] - least[0][0] > 1:
            source, receiver = most[0][1], least[0][1]
            self._give(topic_id, owned[source].pop(), receiver)
            heapreplace(least, (loads[receiver], receiver))
            loads[source] -= 1
            if owned[source]:
                heapreplace(most, (-loads[source], source))
            else:
                heappop(most)

    def assignment(self) -> Assignment:
        assigned: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in self._loads}
        for topic_id, owned in self._owned.items():
            for member_id, partitions in owned.items():
                assigned[member_id].extend(
                    TopicIdPartition(topic_id, partition) for partition in partitions
                )
        return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}
