"""The input and the result of a broker-side assignor (KIP-848).

Pure values. An assignor sees subscriptions that are resolved to ids of topics that exist, and the
present target of each member, which it keeps as far as its own rules let it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from fairlead_model.ids import PartitionIndex, TopicId


class TopicIdPartition(NamedTuple):
    """A partition of a topic that is named by its id; equal to the plain tuple."""

    topic_id: TopicId
    partition: PartitionIndex


Assignment: TypeAlias = Mapping[str, frozenset[TopicIdPartition]]
"""By member id: all partitions that the member shall have. Each member is in it."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: `subscribed_topics` are ids out of the topics of the AssignmentSpec."""

    subscribed_topics: frozenset[TopicId]
    target: frozenset[TopicIdPartition] = frozenset()
    """Its part of the last target assignment. Topics in it may be deleted or not subscribed any
    more."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """A group: its members by id, and how many partitions each topic has."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[TopicId, int]

    def all_subscribed_alike(self) -> bool:
        """Tell whether all members subscribe to the same topics: a homogeneous group."""
        subscriptions = iter(self.members.values())
        first = next(subscriptions, None)
        return first is None or all(
            each.subscribed_topics == first.subscribed_topics for each in subscriptions
        )

    def subscribers(self, order: Sequence[str]) -> dict[TopicId, tuple[str, ...]]:
        """Return who subscribes to each topic, by member id in this order of all members.

        Topics with the same subscribers share one tuple. Members that subscribe alike are looked
        at once: a thousand members with a thousand topics are a million pairs.
        """
        alike: dict[frozenset[TopicId], list[int]] = {}
        for place, member_id in enumerate(order):
            alike.setdefault(self.members[member_id].subscribed_topics, []).append(place)
        interested: dict[TopicId, list[int]] = {}
        for number, topics in enumerate(alike):
            for topic_id in topics:
                interested.setdefault(topic_id, []).append(number)
        places = list(alike.values())
        merged: dict[tuple[int, ...], tuple[str, ...]] = {}
        subscribers = {}
        for topic_id, numbers in interested.items():
            key = tuple(numbers)
            if key not in merged:
                merged[key] = tuple(
                    order[place] for place in sorted(chain.from_iterable(places[n] for n in key))
                )
            subscribers[topic_id] = merged[key]
        return subscribers


Assignor: TypeAlias = Callable[[AssignmentSpec], Assignment]
"""Gives every partition of a subscribed topic to one of the topic's subscribers."""
