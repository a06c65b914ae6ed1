"""The groups of old consumers, Kafka 0.8 to 2.x, from the content of their znodes. Pure.

Below /consumers/<group>:

    ids/<consumer>              ephemeral: {"version":1,"subscription":{"orders":2},
                                "pattern":"static","timestamp":"…"}
    owners/<topic>/<partition>  ephemeral: <consumer>-<thread>
    offsets/<topic>/<partition> the next offset to read, as decimal text

Source: Kafka's ZookeeperConsumerConnector and TopicCount, which 2.0 removed from its clients.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_cli.client.places import Place
from fairlead_cli.zookeeper.tree import Skipped, Tree, children_of, find_unreadable
from fairlead_cli.zookeeper.znode_fields import (
    LONG_MAX,
    MalformedError,
    as_number,
    as_object,
    as_partition,
    read_object,
    read_text,
)
from fairlead_model.ids import topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

CONSUMERS = "/consumers"
# Kafka 0.7 numbered partitions for each broker.
PARTITION_0_7 = re.compile(r"[0-9]+-[0-9]+")
GENERATED_ID = re.compile(r"(?P<host>.+)-(?P<ms>[0-9]+)-(?P<uuid>[0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class OldConsumer:
    """A process of the group that is connected, or whose session has not ended yet.

    `topics` are the topics that it reads, or the one pattern; empty if its znode is damaged.
    """

    consumer_id: str
    host: str | None
    topics: tuple[str, ...]

    def __str__(self) -> str:
        host = "" if self.host is None else f" on {self.host}"
        topics = f", reads {', '.join(self.topics)}" if self.topics else ""
        return f"consumer {self.consumer_id}{host}{topics}"


@dataclass(frozen=True, slots=True)
class OldGroup:
    """A group: its members, the owners of partitions, and the position of each partition."""

    name: str
    consumers: tuple[OldConsumer, ...]
    owners: Mapping[Place, str]
    positions: Mapping[Place, int]
    versions: Mapping[Place, int]
    """Version of each position's znode, including damaged ones."""
    skipped: tuple[Skipped, ...]

    @property
    def is_running(self) -> bool:
        """Whether a member may commit at any moment."""
        return bool(self.consumers or self.owners)


def group_path(name: str) -> str:
    """Return the path of a group's znodes."""
    return f"{CONSUMERS}/{name}"


def position_path(group: str, place: Place) -> str:
    """Return the path of a group's position in a partition."""
    return f"{CONSUMERS}/{group}/offsets/{place.topic}/{place.partition}"


def read_group(tree: Tree, name: str) -> OldGroup:
    """Read one group; invalid znodes are listed by their paths."""
    root = group_path(name)
    skipped = [each for each in find_unreadable(tree) if each.path.startswith(f"{root}/")]
    consumers = []
    for consumer_id in children_of(tree, f"{root}/ids"):
        consumer, problem = read_consumer(tree, name, consumer_id)
        consumers.append(consumer)
        skipped += [] if problem is None else [problem]
    owners = {}
    for place, path in find_places(tree, f"{root}/owners", skipped):
        try:
            owners[place] = read_text(tree[path].data)
        except MalformedError as error:
            owners[place] = ""
            skipped.append(Skipped(path, str(error)))
    positions, versions = {}, {}
    for place, path in find_places(tree, f"{root}/offsets", skipped):
        versions[place] = tree[path].version
        try:
            positions[place] = read_position(tree[path].data)
        except MalformedError as error:
            skipped.append(Skipped(path, str(error)))
    if not positions and not skipped:
        skipped.append(Skipped(root, "the group has never committed", is_expected=True))
    return OldGroup(name, tuple(consumers), owners, positions, versions, tuple(skipped))


def read_consumer(tree: Tree, group: str, consumer_id: str) -> tuple[OldConsumer, Skipped | None]:
    """Read a consumer. A damaged znode still means that it is there."""
    path = f"{CONSUMERS}/{group}/ids/{consumer_id}"
    generated = GENERATED_ID.fullmatch(consumer_id.removeprefix(f"{group}_"))
    host = None if generated is None else generated["host"]
    znode = tree.get(path)
    if znode is None or znode.unreadable is not None:
        return OldConsumer(consumer_id, host, ()), None
    try:
        topics = tuple(as_object(read_object(znode.data).get("subscription", {})))
    except MalformedError as error:
        return OldConsumer(consumer_id, host, ()), Skipped(path, str(error))
    return OldConsumer(consumer_id, host, topics), None


def find_places(tree: Tree, root: str, skipped: list[Skipped]) -> list[tuple[Place, str]]:
    """Return the partitions below a znode with their paths; odd names go to `skipped`."""
    places = []
    for topic in children_of(tree, root):
        path = f"{root}/{topic}"
        problem = topic_name_problem(topic)
        if problem is not None:
            skipped.append(Skipped(path, problem))
            continue
        for name in children_of(tree, path):
            at = f"{path}/{name}"
            if at not in tree or tree[at].unreadable is not None:
                continue  # Deleted meanwhile, or listed as unreadable.
            try:
                places.append((Place(topic, as_partition(name)), at))
            except MalformedError as error:
                is_0_7 = PARTITION_0_7.fullmatch(name) is not None
                reason = "Kafka 0.7's <broker>-<partition>" if is_0_7 else str(error)
                skipped.append(Skipped(at, reason))
    return sorted(places)


def read_position(data: bytes) -> int:
    """Return the next offset to read."""
    text = read_text(data)
    if not text:
        raise MalformedError("it is empty")
    return as_number(text, LONG_MAX)
