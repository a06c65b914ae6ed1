"""Computes the target assignment of a group: resolves subscriptions, chooses and calls an assignor.

Pure (Kafka's `TargetAssignmentBuilder`). The result of an assignor is checked: the partitions have
to exist, and each has to go to one member that subscribes to its topic.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING

from fairlead_broker.group.assignors.assignment import AssignmentSpec, MemberSpec
from fairlead_broker.group.assignors.by_name import ASSIGNORS
from fairlead_model.invariants import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead_broker.group.records.consumer_records import Target
    from fairlead_broker.group.records.consumer_state import ConsumerGroupState
    from fairlead_model.cluster import ClusterImage
    from fairlead_model.ids import TopicId

_HASH_BYTES = 8


def preferred_assignor(wanted: Iterable[str | None], offered: Sequence[str]) -> str:
    """Return the assignor that most members ask for, else the first that the broker offers."""
    votes = Counter(name for name in wanted if name is not None and name in offered)
    if not votes:
        return offered[0]
    most = max(votes.values())
    return next(name for name in offered if votes[name] == most)


def metadata_hash(names: Iterable[str], image: ClusterImage) -> int:
    """Return a number that changes when a topic out of `names` is made, deleted or grown.

    It is 0 if none of them exists. Kafka's hash also changes with the racks of replicas, which no
    assignor here uses; if a group moves between Kafka and Fairlead, the other hash costs one
    rebalance.
    """
    digest = blake2b(digest_size=_HASH_BYTES)
    is_none = True
    for name in sorted(names):
        topic = image.topic(name)
        if topic is not None and topic.partitions:
            is_none = False
            encoded = name.encode()
            digest.update(len(encoded).to_bytes(4, "big") + encoded)
            digest.update(topic.topic_id + len(topic.partitions).to_bytes(4, "big"))
    return 0 if is_none else int.from_bytes(digest.digest(), "big", signed=True)


def subscribed_topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[TopicId]:
    """Return the ids of those of the topics that exist."""
    topics = map(image.topic, names)
    return frozenset(topic.topic_id for topic in topics if topic is not None and topic.partitions)


def build_targets(
    state: ConsumerGroupState, image: ClusterImage, offered: Sequence[str]
) -> dict[str, Target]:
    """Return what each member shall have, by the assignor that most of them want."""
    members: dict[str, MemberSpec] = {}
    counts: dict[TopicId, int] = {}
    known: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}
    for member_id, member in state.members.items():
        subscription = (member.topic_names, member.topic_regex)
        topic_ids = known.get(subscription)
        if topic_ids is None:
            topic_ids = known[subscription] = subscribed_topic_ids(state.topic_names(member), image)
            for topic_id in topic_ids - counts.keys():
                topic = image.topic_by_id(topic_id)
                counts[topic_id] = 0 if topic is None else len(topic.partitions)
        members[member_id] = MemberSpec(topic_ids, state.target(member_id), member.instance_id)
    name = preferred_assignor((each.server_assignor for each in state.members.values()), offered)
    targets = dict(ASSIGNORS[name](AssignmentSpec(members, counts)))
    _check(targets, members, counts, name)
    return targets


def _check(
    targets: dict[str, Target],
    members: dict[str, MemberSpec],
    counts: dict[TopicId, int],
    name: str,
) -> None:
    require(targets.keys() == members.keys(), "{} left members out, or made some up", name)
    assigned: set[tuple[TopicId, int]] = set()
    total = 0
    for member_id, target in targets.items():
        total += len(target)
        assigned |= target
        for topic_id in {each.topic_id for each in target}:
            is_subscribed = topic_id in members[member_id].subscribed_topics
            require(is_subscribed, "{} gave {} a topic that it does not read", name, member_id)
    require(len(assigned) == total, "{} gave a partition to two members", name)
    is_there = all(0 <= partition < counts[topic_id] for topic_id, partition in assigned)
    require(is_there, "{} gave a partition that there is not", name)
