"""Which changes go to which table, in an order in which a crash in between does no harm. Pure.

A batch is written in stages, each a set of tables that are written independently:

1. the table `cluster` names new tables as `making`, and topics that become whole only with the
   third stage as `unfinished`: of no others does a crash leave parts;
2. the numbered tables: rules and credentials, partitions and headers. A topic that spans several
   tables is `making` (or keeps its old partition count) until all its partitions are there, and so
   is one whose name another topic gives up;
3. the headers that make such topics `live`, or take the last line of deleted ones away;
4. the table `cluster`: registrations, counters, dynamic configs, new tables as `made`, nothing
   `unfinished` any more.

So a registration reaches the cluster table only when the old incarnation has left every leadership,
and a topic is live only when it is whole. A topic found `making` was never acknowledged to anybody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.observations import LogsReported, ReplicasFull, ReplicasOffline
from fairlead_controller.decisions.state import (
    BrokerConfirmed,
    BrokerDraining,
    BrokerLeaving,
    ControllerChange,
    CountersChanged,
    IntentChanged,
    MinimumSpread,
    UserDeclared,
)
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.security_lines import (
    SecurityChange,
    SecurityLayout,
    security_line,
    security_table_name,
)
from fairlead_controller.decisions.tables.stored_table import TABLE_BYTES_MAX, line_bytes
from fairlead_controller.decisions.tables.surplus import Surplus
from fairlead_controller.decisions.tables.table_bytes import (
    broker_bytes,
    counters_bytes,
    header_bytes,
    partition_bytes,
)
from fairlead_model.cluster import (
    AclChanged,
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    ClientQuotaChanged,
    CredentialChanged,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicRemoved,
    TopicState,
)
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

CLUSTER_TABLE: Final = "cluster"
PARTITIONS_PER_TABLE: Final = 500

Stage = dict[str, dict[str, str | None]]
"""Table to key to line; None removes the line."""


def table_name(number: int) -> str:
    """Return the name of a numbered table; names sort as the numbers do."""
    return f"partitions-{number:05d}"


def table_number(name: str) -> int:
    """Return the number of a numbered table."""
    return int(name.rpartition("-")[2])


@dataclass(slots=True)
class TableLayout:
    """Which table holds which partition, and how large each table may become (`table_bytes`).

    Only planning and loading change it.
    """

    tables: dict[bytes, list[int]] = field(default_factory=dict)
    """Topic id → table number of each partition."""
    header_tables: dict[bytes, int] = field(default_factory=dict)
    """Topic id → number of the table that holds its header, that of its first partition."""
    fill: dict[int, int] = field(default_factory=dict)
    """Table number → partitions in it."""
    open_table: int = 0
    """The table that takes the next partition if it has room."""
    bytes_max: int = TABLE_BYTES_MAX
    """How large a table may be."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Table number → bytes of its lines."""
    partition_sizes: dict[bytes, list[int]] = field(default_factory=dict)
    """Topic id → bytes of each partition's line."""
    header_sizes: dict[bytes, int] = field(default_factory=dict)
    """Topic id → bytes of its header's line."""
    replicas: dict[bytes, int] = field(default_factory=dict)
    """Topic id → replicas of its partitions."""
    cluster_sizes: dict[str, int] = field(default_factory=dict)
    """Key → bytes of a line in the table of the cluster; none of the controller's own notes."""
    cluster_size: int = 0
    """Bytes of these lines."""
    security: SecurityLayout = field(default_factory=SecurityLayout)
    """Where rules and credentials are."""
    surplus: Surplus = field(default_factory=Surplus)
    """Fields of lines that another release has written and this one does not know."""

    def add_partition(self, topic_id: bytes, number: int, partition: PartitionRegistration) -> None:
        """Note that a topic's next partition is in a table."""
        self.header_tables.setdefault(topic_id, number)
        numbers = self.tables.setdefault(topic_id, [])
        size = partition_bytes(topic_id, len(numbers), partition)
        numbers.append(number)
        self.partition_sizes.setdefault(topic_id, []).append(size)
        self.replicas[topic_id] = max(self.replicas.get(topic_id, 0), len(partition.replicas))
        self.fill[number] = self.fill.get(number, 0) + 1
        self.sizes[number] = self.sizes.get(number, 0) + size

    def resize_partition(self, change: PartitionChanged) -> None:
        """Note that a record names other brokers than before."""
        topic_id, index = change.topic_id, change.index
        sizes = self.partition_sizes[topic_id]
        size = partition_bytes(topic_id, index, change.partition)
        self.sizes[self.tables[topic_id][index]] += size - sizes[index]
        sizes[index] = size

    def set_header(self, header: TopicHeader) -> None:
        """Note the header of a topic whose table is known."""
        topic_id = header.topic_id
        number = self.header_tables[topic_id]
        size = header_bytes(header, self.replicas.get(topic_id, 0))
        growth = size - self.header_sizes.get(topic_id, 0)
        self.header_sizes[topic_id] = size
        self.sizes[number] = self.sizes.get(number, 0) + growth

    def set_cluster_line(self, key: str, size: int) -> None:
        """Note the size of a line of the table of the cluster, or that it is removed."""
        self.cluster_size += size - self.cluster_sizes.pop(key, 0)
        if size:
            self.cluster_sizes[key] = size
        else:
            self.cluster_size -= self.surplus.forget(key)

    def keep_cluster_fields(self, key: str, fields: Mapping[str, Any]) -> None:
        """Note fields of a line of the table of the cluster that this release does not know."""
        self.cluster_size += self.surplus.note(key, fields)

    def keep_fields(self, number: int, key: str, fields: Mapping[str, Any]) -> None:
        """Note fields of a line of a numbered table that this release does not know."""
        self.keep_bytes(number, self.surplus.note(key, fields))

    def keep_bytes(self, number: int, size: int) -> None:
        """Note that a numbered table holds this much more that this release does not know."""
        self.sizes[number] = self.sizes.get(number, 0) + size

    def remove_topic(self, topic_id: bytes) -> list[int]:
        """Forget a topic; return the tables of its partitions."""
        numbers = self.tables.pop(topic_id, [])
        header_table = self.header_tables.pop(topic_id, None)
        if header_table is not None:
            self.sizes[header_table] -= self.header_sizes.pop(topic_id, 0)
            self.sizes[header_table] -= self.surplus.forget(lines.topic_key(topic_id))
        self.replicas.pop(topic_id, None)
        sizes = self.partition_sizes.pop(topic_id, [])
        for index, (number, size) in enumerate(zip(numbers, sizes, strict=True)):
            self.fill[number] -= 1
            self.sizes[number] -= size
            if self.surplus:
                self.sizes[number] -= self.surplus.forget(lines.partition_key(topic_id, index))
            if (
                number < self.open_table
                and self.fill[number] <= PARTITIONS_PER_TABLE // 2
                and self.sizes[number] <= self.bytes_max // 2
            ):
                # Room again: fill it before making more tables.
                self.open_table = number
        return numbers

    def place_partition(
        self, header: TopicHeader, partition: PartitionRegistration
    ) -> tuple[int, bool]:
        """Choose the table of a topic's next partition; tell whether the table is new.

        The table of the first partition has room for the topic's header, too.
        """
        topic_id = header.topic_id
        index = len(self.tables.get(topic_id, ()))
        needed = partition_bytes(topic_id, index, partition)
        is_first = topic_id not in self.header_tables
        if is_first:
            needed += header_bytes(header, len(partition.replicas))
        while not self._has_room(self.open_table, needed):
            self.open_table += 1
        number = self.open_table
        is_new = number not in self.fill
        self.add_partition(topic_id, number, partition)
        if is_first:
            self.set_header(header)
        return number, is_new

    def _has_room(self, number: int, needed: int) -> bool:
        if number not in self.fill:
            return True
        # A fifth is left for headers that grow: they stay where they are.
        room = self.bytes_max * 4 // 5 - self.sizes.get(number, 0)
        return self.fill[number] < PARTITIONS_PER_TABLE and needed <= room


class WritePlan:
    """The stages of one batch of changes."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._making: dict[str, str | None] = {}
        self._partitions: Stage = {}
        self._headers: dict[bytes, TopicHeader] = {}
        self._removals: Stage = {}
        self._declared: dict[str, dict[str, tuple[str | None, bool]]] = {}
        """Lines of User resources, by key and table."""
        self._cluster: dict[str, str | None] = {}
        self._grown: set[bytes] = set()
        self._known_counts: dict[bytes, int] = {}
        self._freed: set[str] = set()
        self._maybe_unfinished: set[bytes] = set()

    def count_unfinished(self, changes: Iterable[ControllerChange] = ()) -> int:
        """Count the topics that may have to be named as unfinished, including these changes."""
        return len(self._maybe_unfinished) + sum(
            self._may_be_unfinished(change.header)
            for change in changes
            if isinstance(change, TopicChanged)
        )

    def _may_be_unfinished(self, header: TopicHeader) -> bool:
        numbers = self._layout.tables.get(header.topic_id)
        if numbers is None:
            return header.name in self._freed
        return header.state is TopicState.LIVE and header.partition_count > len(numbers)

    def add(self, changes: Iterable[ControllerChange]) -> None:
        """Add changes in order; the last change of a record is the one that is written."""
        changes = tuple(changes)
        for change in changes:
            # First of all, so that nothing new is put where a header grows.
            if (
                isinstance(change, TopicChanged)
                and change.header.topic_id in self._layout.header_tables
            ):
                self._layout.set_header(change.header)
        for change in changes:
            match change:
                case PartitionChanged():
                    self._add_partition(change)
                case TopicChanged():
                    header = change.header
                    if self._may_be_unfinished(header):
                        self._maybe_unfinished.add(header.topic_id)
                    self._headers[header.topic_id] = header
                    if header.state is TopicState.DELETING:
                        self._freed.add(header.name)
                case TopicRemoved():
                    self._remove_topic(change.topic_id)
                case AclChanged() | CredentialChanged() | ClientQuotaChanged() | UserDeclared():
                    self._add_security(change)
                case (
                    BrokerChanged()
                    | BrokerRemoved()
                    | BrokerConfigsChanged()
                    | GroupConfigsChanged()
                    | FeaturesChanged()
                    | CountersChanged()
                    | IntentChanged()
                ):
                    key, line, size = cluster_line(change)
                    self._cluster[key] = self._layout.surplus.added_to(key, line)
                    self._layout.set_cluster_line(key, size)
                case (
                    BrokerConfirmed()
                    | BrokerDraining()
                    | BrokerLeaving()
                    | ReplicasOffline()
                    | ReplicasFull()
                    | LogsReported()
                    | MinimumSpread()
                    | ClusterLimits()
                ):
                    pass  # Not durable.

    def stages(self) -> list[Stage]:
        """Return the stages in the order in which they have to be written; none is empty."""
        second, third = self._partitions, self._removals
        declarations: Stage = {}
        self._place_declarations(declarations, third)
        unfinished: list[str] = []
        # A topic that takes the name of one that is deleted goes live after that is marked: else a
        # crash between two tables would leave two topics of one name.
        freed = {
            header.name for header in self._headers.values() if header.state is TopicState.DELETING
        }
        for topic_id, header in self._headers.items():
            numbers = self._layout.tables.get(topic_id, [])
            first_table = table_name(self._layout.header_tables[topic_id])
            key, line = self._header_line(header)
            is_spread = len(set(numbers)) > 1
            if topic_id in self._grown and (is_spread or header.name in freed):
                provisional = self._provisional(topic_id, header)
                unfinished.append(lines.unfinished_key(topic_id))
                second.setdefault(first_table, {})[key] = self._header_line(provisional)[1]
                third.setdefault(first_table, {})[key] = line
            else:
                second.setdefault(first_table, {})[key] = line
        fourth = dict(self._cluster)
        fourth.update(dict.fromkeys(self._making, _MADE))
        fourth.update(dict.fromkeys(unfinished))
        ordered = [
            {CLUSTER_TABLE: self._making | dict.fromkeys(unfinished, _UNFINISHED)},
            declarations,
            second,
            third,
            {CLUSTER_TABLE: fourth},
        ]
        kept = [{name: table for name, table in stage.items() if table} for stage in ordered]
        return [stage for stage in kept if stage]

    def _header_line(self, header: TopicHeader) -> tuple[str, str | None]:
        key = lines.topic_key(header.topic_id)
        return key, self._layout.surplus.added_to(key, lines.header_line(header))

    def _provisional(self, topic_id: bytes, header: TopicHeader) -> TopicHeader:
        """Return the header that holds while the new partitions are being written."""
        known = self._known_counts[topic_id]
        if known:
            return replace(header, partition_count=known)
        return replace(header, state=TopicState.MAKING)

    def _add_partition(self, change: PartitionChanged) -> None:
        numbers = self._layout.tables.get(change.topic_id, [])
        if change.index < len(numbers):
            number = numbers[change.index]
            self._layout.resize_partition(change)
        else:
            self._known_counts.setdefault(change.topic_id, len(numbers))
            self._grown.add(change.topic_id)
            header = self._headers[TopicId(change.topic_id)]
            number, is_new = self._layout.place_partition(header, change.partition)
            if number != self._layout.header_tables[header.topic_id]:
                self._maybe_unfinished.add(header.topic_id)
            if is_new:
                self._make_table(table_name(number))
        table = self._partitions.setdefault(table_name(number), {})
        key = lines.partition_key(change.topic_id, change.index)
        line = lines.partition_line(change.partition)
        table[key] = self._layout.surplus.added_to(key, line)

    def _add_security(self, change: SecurityChange) -> None:
        key, line = security_line(change)
        number, is_new = self._layout.security.place(key, line)
        if number is None:
            return
        name = security_table_name(number)
        if is_new:
            self._make_table(name)
        if isinstance(change, UserDeclared):
            is_last = line is None or change.lets_go
            self._declared.setdefault(key, {})[name] = line, is_last
        else:
            self._partitions.setdefault(name, {})[key] = line

    def _place_declarations(self, first: Stage, last: Stage) -> None:
        """Put lines of User resources where they stand for as long as any right of theirs.

        Otherwise a crash between two tables would leave rights that no resource declares.
        """
        for key, tables in self._declared.items():
            for name, (line, is_last) in tables.items():
                stage = last if is_last else first
                stage.setdefault(name, {})[key] = line

    def _make_table(self, name: str) -> None:
        key = f"{lines.TABLE_PREFIX}{name}"
        self._making[key] = _MAKING
        self._layout.set_cluster_line(key, line_bytes(key, _MAKING))

    def _remove_topic(self, topic_id: bytes) -> None:
        header_table = table_name(self._layout.header_tables[topic_id])
        numbers = self._layout.remove_topic(topic_id)
        self._headers.pop(topic_id, None)
        self._grown.discard(topic_id)
        for index, number in enumerate(numbers):
            table = self._partitions.setdefault(table_name(number), {})
            table[lines.partition_key(topic_id, index)] = None
        # The header goes last: until then it says that the topic is being deleted.
        removals = self._removals.setdefault(header_table, {})
        removals[lines.topic_key(topic_id)] = None


def cluster_line(
    change: BrokerChanged
    | BrokerRemoved
    | BrokerConfigsChanged
    | GroupConfigsChanged
    | FeaturesChanged
    | CountersChanged
    | IntentChanged,
) -> tuple[str, str | None, int]:
    """Return key, line (None removes it) and size of a line in the table of the cluster."""
    match change:
        case BrokerChanged():
            asking = change.registration
            key = lines.broker_key(asking.broker_id)
            return key, lines.broker_line(asking), broker_bytes(asking)
        case BrokerRemoved():
            return lines.broker_key(change.broker_id), None, 0
        case CountersChanged():
            return lines.COUNTERS_KEY, lines.counters_line(change), counters_bytes()
        case BrokerConfigsChanged():
            key = f"{lines.CONFIGS_PREFIX}{change.broker}"
            line = lines.dump_line(dict(change.configs)) if change.configs else None
        case GroupConfigsChanged():
            key = lines.group_configs_key(change.group_id)
            line = lines.dump_line(dict(change.configs)) if change.configs else None
        case FeaturesChanged():
            key, line = lines.FEATURES_KEY, lines.features_line(change.features)
        case IntentChanged():
            key = f"{lines.INTENT_PREFIX}{change.intent_id}"
            line = None if change.intent is None else lines.intent_line(change.intent)
    return key, line, 0 if line is None else line_bytes(key, line)


def cluster_line_bytes(key: str, line: str) -> int:
    """Return the bytes that count for a line of the table of the cluster that was read."""
    if key.startswith(lines.UNFINISHED_PREFIX) or key in _OWN_NOTES:
        return 0
    if key.startswith(lines.TABLE_PREFIX):
        return line_bytes(key, _MAKING)
    if key.startswith(lines.BROKER_PREFIX):
        return broker_bytes(lines.parse_line(key, line, lines.build_broker))
    if key == lines.COUNTERS_KEY:
        return counters_bytes()
    return line_bytes(key, line)


_OWN_NOTES: Final = (lines.SEALED_KEY, lines.HISTORY_KEY, lines.ROLLED_BACK_KEY)
_MAKING: Final = lines.dump_line({"state": "making"})
_MADE: Final = lines.dump_line({"state": "made"})
_UNFINISHED: Final = lines.dump_line({})


def first_lines(cluster_id: str, counters: CountersChanged) -> Mapping[str, str | None]:
    """Return the lines of the cluster table of a new cluster."""
    return {
        lines.CLUSTER_KEY: lines.dump_line({"cluster_id": cluster_id}),
        lines.COUNTERS_KEY: lines.counters_line(counters),
    }
