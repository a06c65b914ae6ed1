"""Which changes go to which table, in which order, so that a crash in between harms nobody. Pure.

A batch is written in stages, each a set of tables that are written independently:

1. the table `cluster` names new tables as `making`;
2. the numbered tables: partitions and headers. A topic that spans several tables is `making` (or
   keeps its old partition count) until all its partitions are there, and so is one whose name
   another topic gives up;
3. the headers that make such topics `live`, or take the last line of deleted ones away;
4. the table `cluster`: registrations, counters, dynamic configs, new tables as `made`.

So a registration reaches the cluster table only when the old incarnation has left every leadership,
and a topic is live only when it is whole. A topic found `making` was never acknowledged to anybody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fairlead_controller import lines
from fairlead_controller.observations import LogsReported, ReplicasOffline
from fairlead_controller.state import (
    BrokerConfirmed,
    BrokerDraining,
    ControllerChange,
    CountersChanged,
    IntentChanged,
)
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicRemoved,
    TopicState,
)

CLUSTER_TABLE: Final = "cluster"
PARTITIONS_PER_TABLE: Final = 500

Stage = dict[str, dict[str, str | None]]
"""Table → key → line, None to remove it."""


def table_name(number: int) -> str:
    """Give the name of a numbered table; names sort as the numbers do."""
    return f"partitions-{number:05d}"


def table_number(name: str) -> int:
    """Give the number of a numbered table."""
    return int(name.removeprefix("partitions-"))


@dataclass(slots=True)
class TableLayout:
    """Which table holds which partition. Changed by planning and by loading only."""

    tables: dict[bytes, list[int]] = field(default_factory=dict)
    """Topic id → table number of each partition."""
    header_tables: dict[bytes, int] = field(default_factory=dict)
    """Topic id → number of the table that holds its header, that of its first partition."""
    fill: dict[int, int] = field(default_factory=dict)
    """Table number → partitions in it."""
    open_table: int = 0
    """The table that takes the next partition if it has room."""

    def add_partition(self, topic_id: bytes, number: int) -> None:
        """Note that a topic's next partition is in a table."""
        self.header_tables.setdefault(topic_id, number)
        self.tables.setdefault(topic_id, []).append(number)
        self.fill[number] = self.fill.get(number, 0) + 1

    def remove_topic(self, topic_id: bytes) -> list[int]:
        """Forget a topic; give the tables of its partitions."""
        numbers = self.tables.pop(topic_id, [])
        self.header_tables.pop(topic_id, None)
        for number in numbers:
            self.fill[number] -= 1
            if number < self.open_table and self.fill[number] <= PARTITIONS_PER_TABLE // 2:
                # Room again: fill it before making more tables.
                self.open_table = number
        return numbers

    def place_partition(self, topic_id: bytes) -> tuple[int, bool]:
        """Choose the table of a topic's next partition; tell whether the table is new."""
        while self.fill.get(self.open_table, 0) >= PARTITIONS_PER_TABLE:
            self.open_table += 1
        number = self.open_table
        is_new = number not in self.fill
        self.add_partition(topic_id, number)
        return number, is_new


class WritePlan:
    """The stages of one batch of changes."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._making: dict[str, str | None] = {}
        self._partitions: Stage = {}
        self._headers: dict[bytes, TopicHeader] = {}
        self._removals: Stage = {}
        self._cluster: dict[str, str | None] = {}
        self._grown: set[bytes] = set()
        self._known_counts: dict[bytes, int] = {}

    def add(self, changes: Iterable[ControllerChange]) -> None:
        """Take changes in order; the last word on a record is what gets written."""
        for change in changes:
            match change:
                case PartitionChanged():
                    self._add_partition(change)
                case TopicChanged():
                    self._headers[change.header.topic_id] = change.header
                case TopicRemoved():
                    self._remove_topic(change.topic_id)
                case BrokerChanged():
                    key = f"{lines.BROKER_PREFIX}{change.registration.broker_id}"
                    self._cluster[key] = lines.broker_line(change.registration)
                case BrokerRemoved():
                    self._cluster[f"{lines.BROKER_PREFIX}{change.broker_id}"] = None
                case BrokerConfigsChanged():
                    line = lines.dump_line(dict(change.configs)) if change.configs else None
                    self._cluster[f"{lines.CONFIGS_PREFIX}{change.broker}"] = line
                case CountersChanged():
                    self._cluster[lines.COUNTERS_KEY] = lines.counters_line(change)
                case IntentChanged():
                    intent = change.intent
                    self._cluster[f"{lines.INTENT_PREFIX}{change.intent_id}"] = (
                        None if intent is None else lines.intent_line(intent)
                    )
                case BrokerConfirmed() | BrokerDraining() | ReplicasOffline() | LogsReported():
                    pass  # Not durable.

    def stages(self) -> list[Stage]:
        """Give the stages in the order in which they have to be written, none empty."""
        second, third = self._partitions, self._removals
        # A topic that takes the name of one that is deleted goes live after that is marked: else a
        # crash between two tables would leave two topics of one name.
        freed = {
            header.name for header in self._headers.values() if header.state is TopicState.DELETING
        }
        for topic_id, header in self._headers.items():
            numbers = self._layout.tables.get(topic_id, [])
            first_table = table_name(self._layout.header_tables[topic_id])
            key, line = lines.topic_key(topic_id), lines.header_line(header)
            is_spread = len(set(numbers)) > 1
            if topic_id in self._grown and (is_spread or header.name in freed):
                provisional = self._provisional(topic_id, header)
                second.setdefault(first_table, {})[key] = lines.header_line(provisional)
                third.setdefault(first_table, {})[key] = line
            else:
                second.setdefault(first_table, {})[key] = line
        fourth = dict(self._cluster)
        fourth.update(dict.fromkeys(self._making, _MADE))
        ordered = [
            {CLUSTER_TABLE: self._making},
            second,
            third,
            {CLUSTER_TABLE: fourth},
        ]
        kept = [{name: table for name, table in stage.items() if table} for stage in ordered]
        return [stage for stage in kept if stage]

    def _provisional(self, topic_id: bytes, header: TopicHeader) -> TopicHeader:
        """Give the header that holds while the new partitions are being written."""
        known = self._known_counts[topic_id]
        if known:
            return replace(header, partition_count=known)
        return replace(header, state=TopicState.MAKING)

    def _add_partition(self, change: PartitionChanged) -> None:
        numbers = self._layout.tables.get(change.topic_id, [])
        if change.index < len(numbers):
            number = numbers[change.index]
        else:
            self._known_counts.setdefault(change.topic_id, len(numbers))
            self._grown.add(change.topic_id)
            number, is_new = self._layout.place_partition(change.topic_id)
            if is_new:
                self._making[f"{lines.TABLE_PREFIX}{table_name(number)}"] = _MAKING
        table = self._partitions.setdefault(table_name(number), {})
        table[lines.partition_key(change.topic_id, change.index)] = lines.partition_line(
            change.partition
        )

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


_MAKING: Final = lines.dump_line({"state": "making"})
_MADE: Final = lines.dump_line({"state": "made"})


def first_lines(cluster_id: str, counters: CountersChanged) -> Mapping[str, str | None]:
    """Give the lines of the cluster table of a new cluster."""
    return {
        lines.CLUSTER_KEY: lines.dump_line({"cluster_id": cluster_id}),
        lines.COUNTERS_KEY: lines.counters_line(counters),
    }
