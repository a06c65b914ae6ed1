"""Kafka's znodes, as derived from the tables. Pure.

The tables are the truth. Beside them are the znodes that Kafka's own controller would have written,
for people and tools that read those. Fairlead does not read them, so they may be outdated, and
changes that somebody else makes are overwritten.

| line | znodes |
|---|---|
| cluster | /cluster/id, /fairlead |
| counters | /latest_producer_id_block |
| configs/ID, configs/ | /config/brokers/ID, /config/brokers/&lt;default&gt; |
| topic/ID | /brokers/topics/TOPIC, /config/topics/TOPIC |
| partition/ID/INDEX | /brokers/topics/TOPIC/partitions/INDEX/state |

A topic that is being created has no znodes yet: Kafka's tools would consider it complete. A topic
that is being deleted keeps them to the end, as with Kafka, and loses its entry in
`/admin/delete_topics` in the multi that makes its deletion durable.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fairlead_controller.decisions.tables import lines
from fairlead_model.session.calls import PRODUCER_ID_BLOCK_SIZE
from fairlead_model.topic import TopicState
from fairlead_zookeeper import znodes
from fairlead_zookeeper.operations import Create, Delete, Operation, SetData

CONTAINERS: Final = (
    znodes.BROKERS,
    znodes.BROKER_IDS,
    znodes.BROKER_TOPICS,
    znodes.BROKER_SEQID,
    "/cluster",
    "/config",
    znodes.CONFIG_TOPICS,
    znodes.CONFIG_BROKERS,
    znodes.ADMIN,
    znodes.DELETE_TOPICS,
    znodes.FAIRLEAD,
    znodes.TABLES,
    znodes.CANDIDATES,
)
"""The znodes that every tree has: created before anything is written below them."""
VALUE_BYTES_MAX: Final = 500_000
"""A topic's assignment that is larger is not shown: it would not fit into a request with others."""


class ZnodeChange(NamedTuple):
    """The new data of one znode, or None if it is to be deleted."""

    path: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class _Topic:
    topic_id: str
    name: str
    state: str
    partition_count: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Partition:
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    state: bytes


class Projections:
    """The lines of all tables, and the znodes that show them."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._partitions: dict[str, dict[int, _Partition]] = {}
        self._ids: dict[str, set[str]] = {}
        """Name of a topic → ids of the topics with it: one that is being deleted, and its
        successor."""
        self._others: dict[str, bytes] = {}
        self._counts: dict[str, int] = {}
        """Name of a topic → number of its partitions that have a znode."""
        self._znodes: dict[str, bytes | None] = dict.fromkeys(CONTAINERS)
        """Znodes that are believed to exist, with their data if it is known."""

    def assume(self, tables: Iterable[tuple[int, Mapping[str, str]]]) -> None:
        """Begin with loaded tables, each an epoch and lines, as if their znodes existed.

        Writers and the sweep find out which of them do not exist.
        """
        for epoch, table in tables:
            for key, line in table.items():
                self._note(key, line, epoch)
        for change in self.wanted():
            self._znodes[change.path] = None
        for name in self._ids:
            topic = self._visible(name)
            if topic is not None:
                self._counts[name] = topic.partition_count

    def expect(self, path: str) -> None:
        """Note that a znode exists which others have created."""
        self._znodes[path] = None

    def plan(
        self,
        changed: Mapping[str, str | None],
        epoch: int,
        unsettled: Iterable[ZnodeChange] = (),
    ) -> list[ZnodeChange]:
        """Apply changed lines of a table, and return the changes of znodes that follow.

        `unsettled` are the changes of an earlier write of these lines that did not land. The lines
        are already known here, so only `unsettled` tells which znodes have to be deleted.
        """
        paths: dict[str, None] = {}
        names: dict[str, None] = {}
        for key, line in changed.items():
            touched = self._note(key, line, epoch)
            paths.update(dict.fromkeys(touched.paths))
            names.update(dict.fromkeys(touched.names))
        changes = [change for name in names for change in self._topic_changes(name)]
        covered = {change.path for change in changes}
        changes += [ZnodeChange(path, self.value(path)) for path in paths if path not in covered]
        covered.update(paths)
        again = [path for path, _ in unsettled if path not in covered]
        changes = [*(ZnodeChange(path, self.value(path)) for path in again), *changes]
        # A request that is carried out goes first, in the multi that writes the table: if it
        # outlived its topic, it would delete the next one of that name.
        changes.sort(key=lambda change: not change.path.startswith(f"{znodes.DELETE_TOPICS}/"))
        return [change for change in changes if self._is_news(change)]

    def operations(self, changes: Sequence[ZnodeChange]) -> list[list[Operation]]:
        """Return the operations of a multi for each change, which also create missing parents."""
        made: set[str] = set()
        planned: list[list[Operation]] = []
        for path, value in changes:
            if value is None:
                planned.append([Delete(path)] if path in self._znodes else [])
            elif path in self._znodes:
                planned.append([SetData(path, value)])
            else:
                missing = [each for each in _ancestors(path) if not self._is_there(each, made)]
                made.update((*missing, path))
                planned.append([*(Create(each) for each in missing), Create(path, value)])
        return planned

    def note_written(self, changes: Iterable[ZnodeChange]) -> None:
        """Note that changes were carried out."""
        for path, value in changes:
            if value is None:
                self._znodes.pop(path, None)
            else:
                self._znodes[path] = value

    def note_doubt(self, changes: Iterable[ZnodeChange]) -> None:
        """Note that changes may have been carried out, or still will be: what is known is old."""
        for path, _ in changes:
            if path in self._znodes:
                self._znodes[path] = None

    def note_seen(self, paths: Iterable[str]) -> None:
        """Note that znodes exist; data that is known stays, it may be newer than what was seen."""
        for path in paths:
            self._znodes.setdefault(path, None)

    def note_found(self, found: Mapping[str, bool]) -> None:
        """Note which znodes exist; their data is unknown."""
        for path, is_there in found.items():
            if is_there:
                self._znodes[path] = None
            else:
                self._znodes.pop(path, None)

    def involved(self, changes: Iterable[ZnodeChange]) -> list[str]:
        """Return the paths that changes depend on."""
        paths: dict[str, None] = {}
        for path, _ in changes:
            paths.update(dict.fromkeys((*_ancestors(path), path)))
        return list(paths)

    def wanted(self) -> list[ZnodeChange]:
        """Return every znode that should exist, parents first."""
        changes = [ZnodeChange(path, value) for path, value in self._others.items()]
        for name in self._ids:
            topic = self._visible(name)
            if topic is not None:
                changes += self._topic_znodes(topic)
        return changes

    def topics(self) -> list[str]:
        """Return the names of all topics that have znodes."""
        return [name for name in self._ids if self.knows_topic(name)]

    def knows_topic(self, name: str) -> bool:
        """Tell whether a topic of this name has znodes."""
        return self._visible(name) is not None

    def unwanted(self, paths: Sequence[str]) -> list[str]:
        """Return those of these znodes that should not exist."""
        return [path for path in paths if self.value(path) is None]

    def value(self, path: str) -> bytes | None:
        """Return what a znode should hold now; None if it should not exist."""
        if path in self._others:
            return self._others[path]
        parts = path.split("/")
        is_topics = path.startswith(f"{znodes.BROKER_TOPICS}/")
        if not is_topics and not path.startswith(f"{znodes.CONFIG_TOPICS}/"):
            return None
        topic = self._visible(parts[3])
        if topic is None:
            return None
        if not is_topics:
            return znodes.config_value(topic.configs)
        if len(parts) == 4:
            return self._topic_value(topic)
        if len(parts) == 5:
            return b""
        index = int(parts[5]) if parts[5].isdecimal() else -1
        partition = self._partitions.get(topic.topic_id, {}).get(index)
        if partition is None or index >= topic.partition_count:
            return None
        return b"" if len(parts) == 6 else partition.state

    def _is_there(self, path: str, made: set[str]) -> bool:
        return path in self._znodes or path in made

    def _is_news(self, change: ZnodeChange) -> bool:
        if change.value is None:
            return change.path in self._znodes
        return self._znodes.get(change.path) != change.value

    def _visible(self, name: str) -> _Topic | None:
        """Return the topic that a name's znodes show: a live one, else one being deleted."""
        going = None
        for topic_id in self._ids.get(name, ()):
            topic = self._topics[topic_id]
            if topic.state == TopicState.LIVE:
                return topic
            if topic.state == TopicState.DELETING:
                going = topic
        return going

    def _topic_changes(self, name: str) -> list[ZnodeChange]:
        """Return what a topic's znodes should be, and which to delete, deepest first."""
        topic = self._visible(name)
        count = 0 if topic is None else topic.partition_count
        before = self._counts.get(name, 0)
        gone = [
            ZnodeChange(path, None)
            for index in range(before - 1, count - 1, -1)
            for path in _partition_paths(name, index)[::-1]
        ]
        if topic is not None:
            self._counts[name] = count
            return [*gone, *self._topic_znodes(topic)]
        self._counts.pop(name, None)
        top = znodes.topic_path(name)
        paths = (f"{top}/partitions", top, f"{znodes.CONFIG_TOPICS}/{name}")
        return [*gone, *(ZnodeChange(path, None) for path in paths)]

    def _topic_znodes(self, topic: _Topic) -> list[ZnodeChange]:
        top = znodes.topic_path(topic.name)
        changes = [
            ZnodeChange(top, self._topic_value(topic)),
            ZnodeChange(f"{top}/partitions", b""),
        ]
        partitions = self._partitions.get(topic.topic_id, {})
        for index in range(topic.partition_count):
            partition = partitions.get(index)
            if partition is not None:
                above, state = _partition_paths(topic.name, index)
                changes += [ZnodeChange(above, b""), ZnodeChange(state, partition.state)]
        config = znodes.config_value(topic.configs)
        changes.append(ZnodeChange(f"{znodes.CONFIG_TOPICS}/{topic.name}", config))
        return changes

    def _topic_value(self, topic: _Topic) -> bytes:
        known = self._partitions.get(topic.topic_id, {})
        partitions = [known[index] for index in range(topic.partition_count) if index in known]
        value = znodes.topic_value(
            [partition.replicas for partition in partitions],
            topic_id=topic.topic_id,
            adding={at: each.adding for at, each in enumerate(partitions) if each.adding},
            removing={at: each.removing for at, each in enumerate(partitions) if each.removing},
        )
        if len(value) <= VALUE_BYTES_MAX:
            return value
        # The id is what a sweep knows a topic of ours by once the tables have forgotten it.
        return znodes.topic_value([], topic_id=topic.topic_id, adding={}, removing={})

    def _note(self, key: str, line: str | None, epoch: int) -> "_Touched":
        """Apply a line; return what it concerns. A line that cannot be read concerns nothing."""
        record: dict[str, Any] | None = None
        if line is not None:
            record = znodes.decode(line.encode())
            if record is None:
                return _Touched()
        try:
            if key.startswith(lines.PARTITION_PREFIX):
                return self._note_partition(key, record, epoch)
            if key.startswith(lines.TOPIC_PREFIX):
                return self._note_topic(key.removeprefix(lines.TOPIC_PREFIX), record)
            return self._note_other(key, record)
        except (KeyError, TypeError, ValueError):
            # Loading reports damaged lines; nothing of them is shown.
            return _Touched()

    def _note_partition(self, key: str, record: dict[str, Any] | None, epoch: int) -> "_Touched":
        _, topic_id, text = key.split("/")
        index = int(text)
        partitions = self._partitions.setdefault(topic_id, {})
        before = partitions.get(index)
        if record is None:
            partitions.pop(index, None)
            if not partitions:
                del self._partitions[topic_id]
        else:
            partitions[index] = _read_partition(record, epoch)
        topic = self._topics.get(topic_id)
        if topic is None or self._visible(topic.name) is not topic:
            return _Touched()
        after = partitions.get(index)
        if before is None or after is None:
            return _Touched(names=(topic.name,))
        state = _partition_paths(topic.name, index)[1]
        is_moved = (before.replicas, before.adding, before.removing) != (
            after.replicas,
            after.adding,
            after.removing,
        )
        return _Touched(paths=(state, znodes.topic_path(topic.name)) if is_moved else (state,))

    def _note_topic(self, topic_id: str, record: dict[str, Any] | None) -> "_Touched":
        before = self._topics.pop(topic_id, None)
        if before is not None:
            self._ids[before.name].discard(topic_id)
            if not self._ids[before.name]:
                del self._ids[before.name]
        if record is None:
            return _Touched(names=(before.name,) if before is not None else ())
        after = _Topic(
            topic_id,
            str(record["name"]),
            str(record["state"]),
            int(record["partitions"]),
            dict(record.get("configs", {})),
        )
        self._topics[topic_id] = after
        self._ids.setdefault(after.name, set()).add(topic_id)
        done: tuple[str, ...] = ()
        if after.state == TopicState.DELETING:
            done = (f"{znodes.DELETE_TOPICS}/{after.name}",)
        names = {after.name: None} | ({} if before is None else {before.name: None})
        return _Touched(paths=done, names=tuple(names))

    def _note_other(self, key: str, record: dict[str, Any] | None) -> "_Touched":
        values: dict[str, bytes | None] = {}
        if key == lines.CLUSTER_KEY and record is not None:
            cluster_id = str(record["cluster_id"])
            values[znodes.CLUSTER_ID] = znodes.cluster_value(cluster_id)
            values[znodes.FAIRLEAD] = znodes.root_value(cluster_id)
        elif key == lines.COUNTERS_KEY and record is not None:
            following = int(record["next_producer_id"])
            if following:
                block = znodes.producer_ids_value(following, PRODUCER_ID_BLOCK_SIZE)
                values[znodes.PRODUCER_ID_BLOCK] = block
        elif key.startswith(lines.CONFIGS_PREFIX):
            entity = key.removeprefix(lines.CONFIGS_PREFIX) or znodes.ENTITY_DEFAULT
            path = f"{znodes.CONFIG_BROKERS}/{entity}"
            values[path] = None if record is None else znodes.config_value(record)
        for path, value in values.items():
            if value is None:
                self._others.pop(path, None)
            else:
                self._others[path] = value
        return _Touched(paths=tuple(values))


class _Touched(NamedTuple):
    """What a line concerns: single znodes, and topics as a whole."""

    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def is_same_value(wanted: bytes, found: bytes) -> bool:
    """Tell whether a znode holds what it should; the writer of a partition's state is ignored."""
    if wanted == found:
        return True
    left, right = znodes.decode(wanted), znodes.decode(found)
    if left is None or right is None:
        return False
    for record in (left, right):
        record.pop("controller_epoch", None)
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _read_partition(record: Mapping[str, Any], epoch: int) -> _Partition:
    state = znodes.state_value(
        controller_epoch=epoch,
        leader=int(record["leader"]),
        leader_epoch=int(record["leader_epoch"]),
        isr=record["isr"],
        recovery=int(record.get("recovery_state", 0)),
    )
    return _Partition(
        tuple(record["replicas"]),
        tuple(record.get("adding", ())),
        tuple(record.get("removing", ())),
        state,
    )


def _partition_paths(topic: str, index: int) -> tuple[str, str]:
    above = znodes.partition_path(topic, index)
    return above, f"{above}/state"


def _ancestors(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]
