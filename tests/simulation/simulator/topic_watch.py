"""The observer of topics that are created, grow and are deleted, and of brokers' reactions.

A topic is live only when it is complete. A broker's data of a topic is removed only once the topic
is marked as being deleted. The topic is forgotten only when no broker has a replica any more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead_controller.decisions.tables.lines import (
    PARTITION_PREFIX,
    TOPIC_PREFIX,
    parse_partition_key,
)
from fairlead_model.ids import parse_topic_id

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost
    from simulator.checker import Checker, PartitionKey
    from simulator.disk_log import AnyLog

    from fairlead_controller.stores.metadata_store import TableWrite

MAKING, LIVE, DELETING = "making", "live", "deleting"


@dataclass(frozen=True, slots=True)
class Header:
    """A topic in the store."""

    name: str
    count: int
    state: str
    unconfirmed: frozenset[int]


class TopicWatch:
    """`headers` are the store's, `lines` the partitions that have a line in it."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.headers: dict[bytes, Header] = {}
        self.lines: dict[bytes, set[int]] = {}
        self.gone: set[bytes] = set()
        """Ids of topics that have ever been marked as being deleted."""
        self._holders: dict[bytes, set[int]] = {}

    def is_live(self, topic_id: bytes) -> bool:
        header = self.headers.get(topic_id)
        return header is not None and header.state == LIVE

    def live(self, name: str) -> bytes | None:
        """Return the present id of a name."""
        for topic_id, header in self.headers.items():
            if header.name == name and header.state == LIVE:
                return topic_id
        return None

    def on_written(self, write: TableWrite) -> None:
        """Follow partitions first, then deleted topics: a table takes all its lines at once."""
        for key, line in write.lines.items():
            if key.startswith(PARTITION_PREFIX):
                topic_id, index = parse_partition_key(key)
                known = self.lines.setdefault(topic_id, set())
                if line is None:
                    known.discard(index)
                else:
                    known.add(index)
        headers = [
            (parse_topic_id(key.removeprefix(TOPIC_PREFIX)), json.loads(line) if line else None)
            for key, line in write.lines.items()
            if key.startswith(TOPIC_PREFIX)
        ]
        for topic_id, fields in sorted(headers, key=_live_last):
            self._on_header(topic_id, fields)

    def _on_header(self, topic_id: bytes, fields: dict[str, Any] | None) -> None:
        old = self.headers.get(topic_id)
        if fields is None:
            if old is not None:
                self._on_removed(topic_id, old)
            return
        header = Header(
            fields["name"],
            fields["partitions"],
            fields["state"],
            frozenset(fields["unconfirmed_deletions"]),
        )
        self.headers[topic_id] = header
        if header != old:
            self._checker.world.note("topic %s", header)
        if header.state == LIVE:
            self._on_live(topic_id, header)
        elif header.state == DELETING:
            self._on_deleting(topic_id, header, old)

    def _on_live(self, topic_id: bytes, header: Header) -> None:
        if topic_id in self.gone:
            self._fail("topic %s is live again", header)
        missing = set(range(header.count)) - self.lines.get(topic_id, set())
        if missing:
            self._fail("topic %s is live and lacks partitions %s", header, sorted(missing))
        for other_id, other in self.headers.items():
            if other_id != topic_id and other.name == header.name and other.state == LIVE:
                self._fail("two topics have the name %s", header.name)
        self._checker.world.churn.on_live(topic_id, header)

    def _on_deleting(self, topic_id: bytes, header: Header, old: Header | None) -> None:
        if topic_id not in self.gone:
            self.gone.add(topic_id)
            self._holders[topic_id] = set(header.unconfirmed)
            for key, truth in self._checker.truths.items():
                if key[0] == topic_id:
                    if truth.record is not None:
                        missing = set(truth.record.replicas) - header.unconfirmed
                        if missing:
                            self._fail("nobody waits for %s to delete %s", missing, header)
                    truth.record = None
            self._checker.world.churn.on_deleted(topic_id)
        elif old is not None:
            for broker_id in old.unconfirmed - header.unconfirmed:
                self._check_let_go(topic_id, broker_id)

    def _on_removed(self, topic_id: bytes, old: Header) -> None:
        del self.headers[topic_id]
        self._checker.world.note("topic %s is forgotten", old)
        if old.state == LIVE:
            self._fail("topic %s vanished though nobody had deleted it", old)
        for broker_id in self._holders.get(topic_id, ()):
            self._check_let_go(topic_id, broker_id)

    def _check_let_go(self, topic_id: bytes, broker_id: int) -> None:
        for key, log in self._checker.world.brokers[broker_id].disk.logs.items():
            if key[0] == topic_id and not log.is_ghost:
                self._fail("broker %d has confirmed and still holds %s", broker_id, log.topic)

    def on_data_deleted(self, host: BrokerHost, key: PartitionKey) -> None:
        self._checker.world.note("%s deletes %s-%d", host.name, key[0].hex()[:4], key[1])
        if key[0] not in self.gone:
            self._checker.moves.on_data_deleted(host, key)

    def on_data_set_aside(self, host: BrokerHost, key: PartitionKey, log: AnyLog) -> None:
        self._checker.world.note("%s sets %s-%d aside", host.name, key[0].hex()[:4], key[1])
        record = self._checker.truths[key].record
        if log.topic_id != key[0] or record is None or not self.is_live(key[0]):
            return  # A failed disk has lost its topic id, or its topic is gone.
        if host.broker_id in record.replicas and log.entries:
            self._fail("%s set %s-%d aside, which it holds", host.name, log.topic, key[1])
        if not log.is_ghost:
            self._checker.moves.on_data_set_aside(host, record)

    def unsettled(self) -> str | None:
        """Return topics and data that are neither complete nor gone yet."""
        for header in self.headers.values():
            if header.state != LIVE:
                return f"topic {header.name} is {header.state}, {sorted(header.unconfirmed)} to go"
        for topic_id, indexes in self.lines.items():
            header_here = self.headers.get(topic_id)
            if indexes and (header_here is None or indexes != set(range(header_here.count))):
                return f"partitions {sorted(indexes)} belong to {header_here}"
        for host in self._checker.world.brokers.values():
            for key, log in host.disk.logs.items():
                record = self._checker.truths[key].record
                if record is None or host.broker_id not in record.replicas:
                    return f"{host.name} holds {log.topic}-{log.partition}, which is no replica"
        return None

    def _fail(self, sentence: str, *arguments: object) -> None:
        self._checker.fail(sentence, *arguments)


def _live_last(header: tuple[bytes, dict[str, Any] | None]) -> bool:
    return header[1] is not None and header[1]["state"] == LIVE
