"""From the tables of the store to the controller's state. Pure.

What a crash left half done is put aside as repairs: topics that never became live, partitions
beyond their topic's count. They were never acknowledged, so dropping them is safe; the lines are
removed by the new controller's first write.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairlead_controller import lines
from fairlead_controller.state import ControllerState, Intent, initial_state
from fairlead_controller.stores.metadata_store import StoreCorruptError, StoredTable
from fairlead_controller.table_plan import (
    CLUSTER_TABLE,
    PARTITIONS_PER_TABLE,
    Stage,
    TableLayout,
    table_name,
    table_number,
)
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    Change,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicState,
    empty_image,
)
from fairlead_model.ids import TopicId, parse_topic_id
from fairlead_model.partition import PartitionRegistration


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the store held."""

    state: ControllerState
    layout: TableLayout
    repairs: Stage
    """Lines to remove, by table."""
    missing_tables: tuple[str, ...]
    """Tables that were being made when the last controller ended; they have to be created."""


def load_state(tables: Mapping[str, StoredTable], *, controller_epoch: int) -> Loaded:
    """Read all tables; StoreCorruptError if they contradict each other."""
    cluster = tables[CLUSTER_TABLE].lines
    missing = _missing_tables(cluster, tables)
    partitions = _Partitions(tables)
    changes = [*_cluster_changes(cluster), *partitions.changes()]
    cluster_id = lines.parse_line(
        lines.CLUSTER_KEY, cluster[lines.CLUSTER_KEY], lambda record: str(record["cluster_id"])
    )
    counters = lines.parse_line(
        lines.COUNTERS_KEY, cluster[lines.COUNTERS_KEY], lines.build_counters
    )
    try:
        image = empty_image(cluster_id).apply(changes)
    except ValueError as error:
        raise StoreCorruptError(f"the tables contradict each other: {error}") from error
    state = initial_state(
        image,
        controller_epoch=controller_epoch,
        counters=counters,
        intents=_intents(cluster),
    )
    return Loaded(state, partitions.layout, partitions.repairs, missing)


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
                f"table {name} is missing though it was made: topics would be lost; "
                "restore it before starting"
            )
        missing.append(name)
    return tuple(missing)


def _cluster_changes(cluster: Mapping[str, str]) -> Iterator[Change]:
    for key, line in cluster.items():
        if key.startswith(lines.BROKER_PREFIX):
            yield BrokerChanged(lines.parse_line(key, line, lines.build_broker))
        elif key.startswith(lines.CONFIGS_PREFIX):
            broker = key.removeprefix(lines.CONFIGS_PREFIX)
            yield BrokerConfigsChanged(broker, lines.parse_line(key, line, dict))


def _intents(cluster: Mapping[str, str]) -> dict[str, Intent]:
    return {
        key.removeprefix(lines.INTENT_PREFIX): lines.parse_line(key, line, lines.build_intent)
        for key, line in cluster.items()
        if key.startswith(lines.INTENT_PREFIX)
    }


class _Partitions:
    """What the numbered tables hold, sorted by topic."""

    def __init__(self, tables: Mapping[str, StoredTable]) -> None:
        self.layout = TableLayout()
        self.repairs: Stage = {}
        self._headers: dict[TopicId, tuple[TopicHeader, str]] = {}
        self._records: dict[TopicId, dict[int, tuple[PartitionRegistration, int]]] = {}
        for name, table in tables.items():
            if name != CLUSTER_TABLE:
                self.layout.fill.setdefault(table_number(name), 0)
                self._read(name, table)

    def _read(self, name: str, table: StoredTable) -> None:
        for key, line in table.lines.items():
            try:
                if key.startswith(lines.TOPIC_PREFIX):
                    topic_id = parse_topic_id(key.removeprefix(lines.TOPIC_PREFIX))
                    header = lines.parse_line(key, line, lines.header_builder(topic_id))
                    self._headers[topic_id] = (header, name)
                elif key.startswith(lines.PARTITION_PREFIX):
                    topic_id, index = lines.parse_partition_key(key)
                    record = lines.parse_line(key, line, lines.build_partition)
                    self._records.setdefault(topic_id, {})[index] = (record, table_number(name))
                else:
                    raise StoreCorruptError(f"table {name} holds the unknown key {key!r}")
            except ValueError as error:
                raise StoreCorruptError(f"table {name} holds the bad key {key!r}") from error

    def changes(self) -> Iterator[Change]:
        """Walk the changes that make the topics; notes what has to be repaired."""
        ordered = sorted(self._headers.items(), key=_deleting_first)
        for topic_id, (header, name) in ordered:
            if header.state is TopicState.MAKING:
                self._remove_line(name, lines.topic_key(topic_id))
                continue
            records = self._records.pop(topic_id, {})
            self.layout.header_tables[topic_id] = table_number(name)
            yield TopicChanged(header)
            yield from self._topic_partitions(header, records)
        for topic_id, orphans in self._records.items():
            for index, (_, number) in orphans.items():
                self._remove_line(table_name(number), lines.partition_key(topic_id, index))
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
                raise StoreCorruptError(f"partition {index} of topic {header.name} is missing")
            self.layout.add_partition(header.topic_id, found[1])
            yield PartitionChanged(header.topic_id, index, found[0])
        for index, (_, number) in records.items():
            self._remove_line(table_name(number), lines.partition_key(header.topic_id, index))

    def _remove_line(self, table: str, key: str) -> None:
        self.repairs.setdefault(table, {})[key] = None


def _deleting_first(item: tuple[TopicId, tuple[TopicHeader, str]]) -> tuple[bool, bytes]:
    return (item[1][0].state is not TopicState.DELETING, item[0])


def _has_room(fill: int) -> bool:
    return fill < PARTITIONS_PER_TABLE
