"""Whether what a decision adds fits the tables; asked before the decision is taken. Pure.

New partitions go where there is room, to a new table if necessary. Three things cannot: the header
of a topic stays with its first partition, and brokers and dynamic configs, configs of groups,
intents and the names of tables are all in the one table of the cluster. A change that grows one of
these beyond its limit is refused with POLICY_VIOLATION. A change that shrinks one is not refused,
nor is one that `table_bytes` has counted in advance: elections, in-sync sets, fencing, deletions.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from fairlead_controller.decisions.state import ControllerChange, IntentChanged, UserDeclared
from fairlead_controller.decisions.tables.security_lines import (
    SECURITY_TABLE_BYTES_MAX,
    SECURITY_TABLES_MAX,
    SecurityChange,
    security_line,
)
from fairlead_controller.decisions.tables.table_bytes import header_bytes, partition_bytes
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    TableLayout,
    cluster_line,
    table_name,
)
from fairlead_model.cluster import (
    AclChanged,
    BrokerChanged,
    BrokerConfigsChanged,
    ClientQuotaChanged,
    CredentialChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicState,
)
from fairlead_model.ids import TopicId
from fairlead_model.session.refusals import RefusalCode, RefusedError

UNFINISHED_TOPICS_MAX: Final = 2000
"""Topics of one batch that may be written in several tables: the table of the cluster names each
of them meanwhile."""
PASSING_BYTES: Final = 100_000
"""Bytes of the table of the cluster for these names, those of new tables, and the controller's
notes."""
KNOWN_BROKERS_BYTES: Final = 50_000
"""Bytes of the table of the cluster for brokers that come back with longer addresses."""

_TABLE_NAME_BYTES: Final = 50
_SECURITY_BYTES_MAX: Final = SECURITY_TABLE_BYTES_MAX * SECURITY_TABLES_MAX * 9 // 10
"""Limit of all rules and credentials; tables are not filled to the last byte."""


class TableRoom:
    """The room in the tables while one decision is being made."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._taken: Counter[int] = Counter()
        self._partitions: dict[tuple[bytes, int], int] = {}
        self._headers: dict[TopicId, int] = {}
        self._cluster_lines: dict[str, int] = {}
        self._cluster_taken = 0
        self._security_taken = 0
        self._freed: set[str] = set()
        self._unfinished: set[TopicId] = set()

    def take(self, changes: Iterable[ControllerChange]) -> None:
        """Note what changes add; raise RefusedError if it does not fit."""
        for change in changes:
            match change:
                case TopicChanged():
                    self._take_header(change.header)
                case PartitionChanged():
                    self._take_partition(change)
                case AclChanged() | CredentialChanged() | ClientQuotaChanged() | UserDeclared():
                    self._take_security(change)
                case (
                    BrokerChanged()
                    | BrokerConfigsChanged()
                    | GroupConfigsChanged()
                    | IntentChanged()
                ):
                    self._take_cluster_line(change)

    def _take_header(self, header: TopicHeader) -> None:
        layout, topic_id = self._layout, header.topic_id
        number = layout.header_tables.get(topic_id)
        size = header_bytes(header, layout.replicas.get(topic_id, 0))
        if number is None:
            most = layout.bytes_max // 4
            if size > most:
                what = f"the header of topic {header.name!r}"
                raise self._refusal(what, size, "shorten its configs", most)
            if header.name in self._freed:
                self._take_unfinished(topic_id)
            return
        if header.state is TopicState.DELETING:
            self._freed.add(header.name)
        growth = size - self._headers.get(topic_id, layout.header_sizes[topic_id])
        after = layout.sizes[number] + self._taken[number] + growth
        if growth > 0 and after > self._layout.bytes_max:
            raise self._refusal(
                f"with this change of topic {header.name!r}, table {table_name(number)}",
                after,
                "shorten the configs of this topic, or delete the topic and create it again: it "
                "then goes to a table that has room",
            )
        self._headers[topic_id] = size
        self._taken[number] += growth

    def _take_partition(self, change: PartitionChanged) -> None:
        layout, topic_id = self._layout, change.topic_id
        known = len(layout.tables.get(topic_id, ()))
        size = partition_bytes(topic_id, change.index, change.partition)
        if change.index < known:
            self._take_growth(change, size)
            return
        most = layout.bytes_max // 2
        if size > most:
            what = f"the record of partition {change.index}"
            raise self._refusal(what, size, "give it fewer replicas", most)
        if known:
            self._take_unfinished(topic_id)
        self._check_cluster(_TABLE_NAME_BYTES, 0, "with new partitions, ")

    def _take_growth(self, change: PartitionChanged, size: int) -> None:
        """Note a line that is there, and was counted with all that it may become until now."""
        layout, key = self._layout, (change.topic_id, change.index)
        number = layout.tables[change.topic_id][change.index]
        growth = size - self._partitions.get(key, layout.partition_sizes[key[0]][change.index])
        after = layout.sizes[number] + self._taken[number] + growth
        if growth > 0 and after > layout.bytes_max:
            raise self._refusal(
                f"with this reassignment, table {table_name(number)}",
                after,
                "wait until others of its partitions have moved",
            )
        self._partitions[key] = size
        self._taken[number] += growth

    def _take_security(self, change: SecurityChange) -> None:
        growth = self._layout.security.growth(*security_line(change))
        after = self._layout.security.size + self._security_taken + growth
        if growth > 0 and after > _SECURITY_BYTES_MAX:
            advice = "remove rules, users or quotas that are not needed, or use prefixes"
            raise self._refusal("rules, users and quotas", after, advice, _SECURITY_BYTES_MAX)
        self._security_taken += growth

    def _take_unfinished(self, topic_id: TopicId) -> None:
        self._unfinished.add(topic_id)
        if len(self._unfinished) > UNFINISHED_TOPICS_MAX:
            raise RefusedError(
                RefusalCode.POLICY_VIOLATION,
                f"one request may grow or replace {UNFINISHED_TOPICS_MAX} topics; "
                "ask again for the rest",
            )

    def _take_cluster_line(
        self, change: BrokerChanged | BrokerConfigsChanged | GroupConfigsChanged | IntentChanged
    ) -> None:
        key, _, size = cluster_line(change)
        known = self._cluster_lines.get(key, self._layout.cluster_sizes.get(key, 0))
        left_free, what = KNOWN_BROKERS_BYTES, "with it, "
        if isinstance(change, BrokerChanged):
            what = f"with broker {change.registration.broker_id}, "
            left_free = 0 if known else KNOWN_BROKERS_BYTES
        elif isinstance(change, BrokerConfigsChanged):
            whom = f"broker {change.broker}" if change.broker else "all brokers"
            what = f"with these dynamic configs of {whom}, "
        elif isinstance(change, GroupConfigsChanged):
            what = "with these configs of a group, "
        self._check_cluster(size - known, left_free, what)
        self._cluster_lines[key] = size
        self._cluster_taken += size - known

    def _check_cluster(self, growth: int, left_free: int, what: str) -> None:
        after = self._layout.cluster_size + self._cluster_taken + growth
        most = self._layout.bytes_max - PASSING_BYTES - left_free
        if growth > 0 and after > most:
            raise self._refusal(
                f"{what}table {CLUSTER_TABLE}",
                after,
                "remove dynamic configs of brokers or groups to make room",
                most,
            )

    def _refusal(self, what: str, size: int, advice: str, most: int | None = None) -> RefusedError:
        most = self._layout.bytes_max if most is None else most
        return RefusedError(
            RefusalCode.POLICY_VIOLATION,
            f"{what} could come to take {size} bytes where the metadata store holds {most}: "
            f"{advice}",
        )
