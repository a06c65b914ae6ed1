"""From the tables of the store to the controller's state. Pure.

Changes that a crash left unfinished become repairs: topics that never became live, and partitions
beyond their topic's count. They were never acknowledged, so it is safe to drop them; the new
controller's first write removes their lines. A crash leaves such lines only for topics that the
table of the cluster calls unfinished, or that are being deleted. If any other topic has them, a
table has gone back in time, and nothing is dropped. A line of rules and users that is in two tables
was on its way from one to the other; it stays in one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead_controller.decisions.state import ControllerState, Intent, initial_state
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.security_lines import (
    is_security_table,
    read_declarations,
    read_security_lines,
    security_table_name,
)
from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoredTable,
    StoreRolledBackError,
    line_bytes,
)
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    PARTITIONS_PER_TABLE,
    Stage,
    TableLayout,
    cluster_line_bytes,
    table_name,
    table_number,
)
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    Change,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicState,
    empty_image,
)
from fairlead_model.ids import TopicId, parse_topic_id
from fairlead_model.partition import PartitionRegistration

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the store held."""

    state: ControllerState
    layout: TableLayout
    repairs: Stage
    """Lines to remove, by table."""
    missing_tables: tuple[str, ...]
    """Tables that were being made when the last controller ended; they have to be created."""
    unknown_lines: int = 0
    """Lines of numbered tables that are of a kind of another release; they stay."""


def load_state(tables: Mapping[str, StoredTable], *, controller_epoch: int) -> Loaded:
    """Read all tables; raise StoreCorruptError if they contradict each other.

    Raise StoreRolledBackError if the reason is that one of them is older than the others.
    """
    cluster = tables[CLUSTER_TABLE].lines
    missing = _missing_tables(cluster, tables)
    partitions = _Partitions(tables)
    changes = [
        *_cluster_changes(cluster, partitions.layout),
        *_security_changes(tables, partitions.layout, partitions.repairs),
        *partitions.changes(),
    ]
    cluster_id = lines.parse_line(
        lines.CLUSTER_KEY, cluster[lines.CLUSTER_KEY], lambda record: str(record["cluster_id"])
    )
    counters = _parse_cluster_line(
        lines.COUNTERS_KEY, cluster[lines.COUNTERS_KEY], lines.build_counters, partitions.layout
    )
    if lines.SEALED_KEY in cluster:
        _parse_cluster_line(lines.SEALED_KEY, cluster[lines.SEALED_KEY], dict, partitions.layout)
    try:
        image = empty_image(cluster_id).apply(changes)
    except ValueError as error:
        raise StoreCorruptError(f"the tables contradict each other: {error}") from error
    state = initial_state(
        image,
        controller_epoch=controller_epoch,
        counters=counters,
        intents=_intents(cluster, partitions.layout),
        users=[
            each
            for name, table in sorted(tables.items())
            if is_security_table(name)
            for each in read_declarations(table.lines)
        ],
    )
    for key, line in cluster.items():
        partitions.layout.set_cluster_line(key, cluster_line_bytes(key, line))
    return Loaded(state, partitions.layout, partitions.repairs, missing, partitions.unknown_lines)


def _missing_tables(
    cluster: Mapping[str, str], tables: Mapping[str, StoredTable]
) -> tuple[str, ...]:
    missing = []
    for key, line in cluster.items():
        name = key.removeprefix(lines.TABLE_PREFIX)
        if not key.startswith(lines.TABLE_PREFIX) or name in tables:
            continue
        if lines.parse_line(key, line, lambda record: record["state"] == "made"):
            raise StoreCorruptError(
                f"table {name} is missing though it was made: "
                f"{'rules and users' if is_security_table(name) else 'topics'} would be lost; "
                "restore it before starting"
            )
        missing.append(name)
    return tuple(missing)


def _parse_cluster_line(
    key: str, line: str, build: Callable[[dict[str, Any]], T], layout: TableLayout
) -> T:
    """Read a line of the table of the cluster; what of it is unknown is kept in the layout."""
    value, unknown = lines.parse_line_of_any_release(key, line, build)
    if unknown:
        layout.keep_cluster_fields(key, unknown)
    return value


def _cluster_changes(cluster: Mapping[str, str], layout: TableLayout) -> Iterator[Change]:
    for key, line in cluster.items():
        if key.startswith(lines.BROKER_PREFIX):
            yield BrokerChanged(_parse_cluster_line(key, line, lines.build_broker, layout))
        elif key.startswith(lines.CONFIGS_PREFIX):
            broker = key.removeprefix(lines.CONFIGS_PREFIX)
            yield BrokerConfigsChanged(broker, lines.parse_line(key, line, lines.build_configs))
        elif key.startswith(lines.GROUP_CONFIGS_PREFIX):
            group_id = lines.parse_group_configs_key(key)
            yield GroupConfigsChanged(group_id, lines.parse_line(key, line, lines.build_configs))
        elif key == lines.FEATURES_KEY:
            yield FeaturesChanged(_parse_cluster_line(key, line, lines.build_features, layout))


def _security_changes(
    tables: Mapping[str, StoredTable], layout: TableLayout, repairs: Stage
) -> Iterator[Change]:
    for name in sorted(filter(is_security_table, tables)):
        held, known = tables[name].lines, layout.security.numbers
        for key in sorted(held.keys() & known.keys()):
            # A crash has left it in two tables: once removed from one, it would come back.
            repairs.setdefault(security_table_name(known[key]), {})[key] = None
            layout.security.place(key, None)
        layout.security.load(table_number(name), held)
        yield from read_security_lines(held)


def _intents(cluster: Mapping[str, str], layout: TableLayout) -> dict[str, Intent]:
    return {
        key.removeprefix(lines.INTENT_PREFIX): _parse_cluster_line(
            key, line, lines.build_intent, layout
        )
        for key, line in cluster.items()
        if key.startswith(lines.INTENT_PREFIX)
    }


class _Partitions:
    """What the numbered tables hold, sorted by topic."""

    def __init__(self, tables: Mapping[str, StoredTable]) -> None:
        self.layout = TableLayout()
        self.repairs: Stage = {}
        self.unknown_lines = 0
        cluster = tables[CLUSTER_TABLE].lines
        self._unfinished = {key for key in cluster if key.startswith(lines.UNFINISHED_PREFIX)}
        self._is_sealed = lines.SEALED_KEY in cluster
        """False for tables of a release that did not record yet which topics are unfinished."""
        self._headers: dict[TopicId, tuple[TopicHeader, str]] = {}
        self._records: dict[TopicId, dict[int, tuple[PartitionRegistration, int]]] = {}
        for name, table in tables.items():
            if name != CLUSTER_TABLE and not is_security_table(name):
                self.layout.fill.setdefault(table_number(name), 0)
                self._read(name, table)

    def _read(self, name: str, table: StoredTable) -> None:
        number = table_number(name)
        for key, line in table.lines.items():
            try:
                if key.startswith(lines.TOPIC_PREFIX):
                    topic_id = parse_topic_id(key.removeprefix(lines.TOPIC_PREFIX))
                    build = lines.header_builder(topic_id)
                    header, unknown = lines.parse_line_of_any_release(key, line, build)
                    self._headers[topic_id] = (header, name)
                elif key.startswith(lines.PARTITION_PREFIX):
                    topic_id, index = lines.parse_partition_key(key)
                    record, unknown = lines.parse_line_of_any_release(
                        key, line, lines.build_partition
                    )
                    self._records.setdefault(topic_id, {})[index] = (record, number)
                else:
                    # A newer release wrote it before it was rolled back: it is not ours to judge.
                    self.unknown_lines += 1
                    self.layout.keep_bytes(number, line_bytes(key, line))
                    continue
            except ValueError as error:
                raise StoreCorruptError(f"table {name} holds the bad key {key!r}") from error
            if unknown:
                self.layout.keep_fields(number, key, unknown)

    def changes(self) -> Iterator[Change]:
        """Yield the changes that make the topics; note what has to be repaired."""
        ordered = sorted(self._headers.items(), key=_deleting_first)
        for topic_id, (header, name) in ordered:
            if header.state is TopicState.MAKING:
                self._check_unfinished(topic_id, f"topic {header.name} is being made", name)
                self._remove_line(name, lines.topic_key(topic_id))
                continue
            records = self._records.pop(topic_id, {})
            self.layout.header_tables[topic_id] = table_number(name)
            yield TopicChanged(header)
            yield from self._topic_partitions(header, records)
            self.layout.set_header(header)
        for topic_id, orphans in self._records.items():
            for index, (_, number) in orphans.items():
                name, key = table_name(number), lines.partition_key(topic_id, index)
                self._check_unfinished(topic_id, f"{key} has no topic", name)
                self._remove_line(name, key)
        for key in self._unfinished:
            self._remove_line(CLUSTER_TABLE, key)
        numbers = [number for number, fill in self.layout.fill.items() if _has_room(fill)]
        self.layout.open_table = min(numbers, default=max(self.layout.fill, default=0))

    def _topic_partitions(
        self, header: TopicHeader, records: dict[int, tuple[PartitionRegistration, int]]
    ) -> Iterator[Change]:
        for index in range(header.partition_count):
            found = records.pop(index, None)
            if found is None:
                if header.state is TopicState.DELETING:
                    break
                raise StoreRolledBackError(
                    f"partition {index} of topic {header.name} is missing: a table is older than "
                    "the others"
                )
            self.layout.add_partition(header.topic_id, found[1], found[0])
            yield PartitionChanged(header.topic_id, index, found[0])
        for index, (_, number) in records.items():
            name, key = table_name(number), lines.partition_key(header.topic_id, index)
            if header.state is not TopicState.DELETING:
                count = f"topic {header.name} has {header.partition_count} partitions, {key} is one"
                self._check_unfinished(header.topic_id, f"{count} more", name)
            self._remove_line(name, key)

    def _check_unfinished(self, topic_id: TopicId, finding: str, table: str) -> None:
        """Raise StoreRolledBackError if what was found of a topic is not the result of a crash."""
        if self._is_sealed and lines.unfinished_key(topic_id) not in self._unfinished:
            raise StoreRolledBackError(
                f"{finding} (table {table}), though nothing of it was left unfinished: a table is "
                "older than the others"
            )

    def _remove_line(self, table: str, key: str) -> None:
        self.repairs.setdefault(table, {})[key] = None
        if size := self.layout.surplus.forget(key):
            self.layout.keep_bytes(table_number(table), -size)


def _deleting_first(item: tuple[TopicId, tuple[TopicHeader, str]]) -> tuple[bool, bytes]:
    return (item[1][0].state is not TopicState.DELETING, item[0])


def _has_room(fill: int) -> bool:
    return fill < PARTITIONS_PER_TABLE
