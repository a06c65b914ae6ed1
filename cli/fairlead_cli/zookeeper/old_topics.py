"""The topics of a Kafka on ZooKeeper, 0.8 to 3.x, from the content of its znodes. Pure.

    /brokers/topics/<topic>       {"version":1,"partitions":{"0":[1,2]}}; since 2.4
                                  adding_replicas and removing_replicas, since 2.8 topic_id
    /config/topics/<topic>        {"version":1,"config":{"retention.ms":"1000"}}; since 0.8.1
    /admin/delete_topics/<topic>  a deletion that was asked for and has not ended

Sources: Kafka's ZkData, TopicZNode and ConfigEntityZNode; KIP-455 and KIP-516 for the later keys.
Kafka 0.7 kept a znode for each broker below a topic, and no assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_cli.zookeeper.tree import Skipped, Tree, children_of, find_unreadable
from fairlead_cli.zookeeper.znode_fields import (
    DECIMAL,
    MalformedError,
    as_broker_ids,
    as_object,
    as_partition,
    read_object,
    shown,
)
from fairlead_model.ids import is_internal_topic, topic_name_problem
from fairlead_model.resources.topic_manifest import config_text
from fairlead_zookeeper.znodes import BROKER_TOPICS, CONFIG_TOPICS, DELETE_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_0_7 = "Kafka 0.7 wrote it: a znode for each broker, and no assignment of replicas"


@dataclass(frozen=True, slots=True)
class OldTopic:
    """A topic as its znodes declare it."""

    name: str
    topic_id: str | None
    replicas: tuple[tuple[int, ...], ...]
    """Broker ids by partition, preferred leader first, after a running reassignment has ended."""
    configs: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        """The most replicas that a partition has; reassignments may have made them differ."""
        return max(len(replicas) for replicas in self.replicas)


@dataclass(frozen=True, slots=True)
class OldTopics:
    """The topics, sorted by name, and what was skipped."""

    topics: tuple[OldTopic, ...]
    skipped: tuple[Skipped, ...]
    is_version_0_7: bool
    """Whether all topics have the format of Kafka 0.7."""


def read_topics(tree: Tree) -> OldTopics:
    """Read all topics of a tree with assignments, settings and pending deletions."""
    skipped = find_unreadable(tree)
    unreadable = {each.path for each in skipped}
    deleting = frozenset(children_of(tree, DELETE_TOPICS))
    topics, is_old = [], []
    for name in children_of(tree, BROKER_TOPICS):
        path = f"{BROKER_TOPICS}/{name}"
        if path in unreadable or path not in tree:
            continue  # Listed above, or deleted while the tree was read.
        is_old.append(is_in_form_0_7(tree, path))
        reason = find_reason_to_skip(tree, name, deleting)
        if reason is not None:
            skipped.append(reason)
            continue
        try:
            topic_id, replicas = read_assignment(tree[path].data)
        except MalformedError as error:
            skipped.append(Skipped(path, str(error)))
            continue
        config_path = f"{CONFIG_TOPICS}/{name}"
        try:
            configs = read_configs(tree, config_path)
        except MalformedError as error:
            text = f"{error}; the topic is left out, for its settings are not known"
            skipped.append(Skipped(config_path, text))
            continue
        topics.append(OldTopic(name, topic_id, replicas, configs))
    known = set(children_of(tree, BROKER_TOPICS))
    for name in children_of(tree, CONFIG_TOPICS):
        if name not in known:
            text = "settings of a topic that does not exist"
            skipped.append(Skipped(f"{CONFIG_TOPICS}/{name}", text, is_expected=True))
    return OldTopics(tuple(topics), tuple(skipped), bool(is_old) and all(is_old))


def is_in_form_0_7(tree: Tree, path: str) -> bool:
    """Tell whether a topic's znode has brokers below it instead of partitions."""
    znode = tree[path]
    has_brokers = all(DECIMAL.fullmatch(child) for child in znode.children)
    return not znode.data and bool(znode.children) and has_brokers


def find_reason_to_skip(tree: Tree, name: str, deleting: frozenset[str]) -> Skipped | None:
    """Return why a topic is skipped, whatever its assignment is; None if it is not."""
    path = f"{BROKER_TOPICS}/{name}"
    if is_in_form_0_7(tree, path):
        return Skipped(path, VERSION_0_7)
    if name in deleting:
        return Skipped(path, f"half deleted: {DELETE_TOPICS}/{name} is there", is_expected=True)
    if is_internal_topic(name):
        return Skipped(path, "the brokers' own: each cluster makes it itself", is_expected=True)
    problem = topic_name_problem(name)
    return None if problem is None else Skipped(path, problem)


def read_assignment(data: bytes) -> tuple[str | None, tuple[tuple[int, ...], ...]]:
    """Return the topic's id, if it has one, and the replicas of each partition."""
    fields = read_object(data)
    assignment = {
        as_partition(number): as_broker_ids(replicas)
        for number, replicas in as_object(fields.get("partitions")).items()
    }
    if not assignment:
        raise MalformedError("it has no partitions")
    # Kafka never leaves a gap; a topic with a gap would be created with too few partitions.
    missing = next((n for n in range(len(assignment)) if n not in assignment), None)
    if missing is not None:
        raise MalformedError(f"partition {missing} is missing, {max(assignment)} is there")
    removing = {
        as_partition(number): as_broker_ids(replicas)
        for number, replicas in as_object(fields.get("removing_replicas") or {}).items()
    }
    replicas = []
    for number in range(len(assignment)):
        leaving = removing.get(number, ())
        staying = tuple(each for each in assignment[number] if each not in leaving)
        if not staying:
            raise MalformedError(f"partition {number} has no replicas")
        replicas.append(staying)
    topic_id = fields.get("topic_id")
    if topic_id is not None and not isinstance(topic_id, str):
        raise MalformedError(f"topic_id is {shown(topic_id)}")
    return topic_id, tuple(replicas)


def read_configs(tree: Tree, path: str) -> dict[str, str]:
    """Return a topic's settings; none if there is no znode, as in Kafka 0.8.0."""
    znode = tree.get(path)
    if znode is None or not (znode.data or znode.unreadable):
        return {}
    if znode.unreadable is not None:
        raise MalformedError("not readable")
    configs = {}
    for name, value in as_object(read_object(znode.data).get("config", {})).items():
        text = config_text(value)
        if text is None:
            raise MalformedError(f"{name} is {shown(value)}")
        configs[name] = text
    return dict(sorted(configs.items()))


def read_partition_counts(tree: Tree) -> dict[str, int]:
    """Return the number of partitions of each readable topic, including internal ones."""
    counts = {}
    for name in children_of(tree, BROKER_TOPICS):
        znode = tree.get(f"{BROKER_TOPICS}/{name}")
        if znode is None:
            continue
        try:
            counts[name] = len(read_assignment(znode.data)[1])
        except MalformedError:
            continue
    return counts
