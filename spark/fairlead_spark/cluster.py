"""A cluster for a reader: topics, leaders, offsets, with one connection to each broker.

Passing errors (a leader that moved, a broker that restarts) are retried here until a deadline. The
result is an answer, or a SourceError with the reason and the broker.
"""

import logging
import os
import random
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fairlead_spark import limits
from fairlead_spark.client_security import read_security
from fairlead_spark.client_settings import ClientSettings, parse_addresses
from fairlead_spark.connection import Connection
from fairlead_spark.errors import SourceError, error_of
from fairlead_spark.offsets import NO_TOPIC_ID, TopicPartition
from fairlead_spark.options import Subscription
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

METADATA_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 8
"""Since version 8, with EARLIEST_LOCAL; an older broker has all of its log on its disks."""
# Errors of a broken connection.
CONNECTION_ERRORS: Final = (OSError, EOFError, RemoteProtocolError)
_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class PassingError(Exception):
    """A retry may succeed; the text has the reason of this failure."""


class MissingTopicError(PassingError):
    """The topic, or the partition of it, is unknown to the broker that was asked."""


@dataclass(frozen=True)
class Topic:
    """A topic that exists. A leader is None if the partition has none."""

    name: str
    topic_id: bytes
    leaders: Mapping[int, int | None]
    leader_epochs: Mapping[int, int]


class Cluster:
    """Keeps connections open between tasks and batches. For one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._bootstrap = parse_addresses(settings.bootstrap_servers)
        random.shuffle(self._bootstrap)
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._produce_connections: dict[tuple[str, int], Connection] = {}
        self._topics: dict[str, Topic] = {}

    def find_topics(self, subscription: Subscription) -> dict[str, Topic]:
        """Return the existing topics of a subscription; a pattern matches no internal topics.

        The broker that answers may not know a topic that was just created, so a named topic is
        looked up again.
        """
        if subscription.pattern:
            # Java's Matcher.matches: the whole name.
            pattern = re.compile(subscription.pattern)
            return self.read_topics(None, lambda name: pattern.fullmatch(name) is not None)
        names = subscription.topics or sorted({each.topic for each in subscription.assigned})
        found = self.read_topics(names)
        # From the first answer on: a slow broker may take longer for it than all the rest.
        deadline = time.monotonic() + limits.NEW_TOPIC_S
        while len(found) < len(names) and time.monotonic() <= deadline:
            time.sleep(limits.RETRY_BACKOFF_S)
            found = self.read_topics(names)
        return found

    def read_topics(
        self,
        names: Iterable[str] | None,
        is_wanted: Callable[[str], bool] = lambda _: True,
        *,
        may_create: bool = False,
    ) -> dict[str, Topic]:
        """Return existing topics by name. `names` None: all.

        `may_create`: a broker with `auto.create.topics.enable` creates missing ones.
        """
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)

        def ask() -> dict[str, Topic]:
            reply = self._call_any(request, METADATA_VERSION)
            self._nodes = {each.node_id: (each.host, each.port) for each in reply.brokers}
            found = {}
            for each in reply.topics:
                skipped = wanted is None and (each.is_internal or not is_wanted(each.name))
                if skipped or each.error_code in _MISSING:
                    continue
                _raise_unless_fine(each.error_code, f"topic {each.name}")
                found[each.name] = _topic(each)
            return found

        topics = self.retry(ask, "the topics")
        self._topics.update(topics)
        return topics

    def read_node_ids(self) -> list[int]:
        """Return the ids of all brokers, from a new request."""
        self.read_topics([])
        return list(self._nodes)

    def forget_leaders(self) -> None:
        """Forget the leaders, so that the next look-up asks a broker again."""
        self._topics.clear()

    def leader_of(self, topic: str, partition: int) -> tuple[int, Topic]:
        """Return the leader's node id; PassingError if there is none."""
        known = self._topics.get(topic)
        if known is None:
            self.read_topics([topic])
            known = self._topics.get(topic)
        if known is None:
            raise MissingTopicError(f"topic {topic} does not exist")
        if partition not in known.leaders:
            raise MissingTopicError(f"topic {topic} has no partition {partition}")
        leader = known.leaders[partition]
        if leader is None or leader not in self._nodes:
            raise PassingError(f"{topic}-{partition} has no leader")
        return leader, known

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return offsets for EARLIEST, LATEST or times in milliseconds; -1: no record is so new.

        `is_committed`: the end is the last stable offset, as a read_committed reader sees it.
        """
        found: dict[TopicPartition, int] = {}

        def ask() -> dict[TopicPartition, int]:
            try:
                for leader, asked in self._by_leader(times, found).items():
                    request = _list_offsets_request(asked, times, is_committed)
                    self._read_offsets(leader, request, found)
            except (PassingError, *CONNECTION_ERRORS):
                self.forget_leaders()
                raise
            return found

        return self.retry(ask, "offsets")

    def call(self, node_id: int, message: Any, version: int) -> Any:
        """Send one request to one broker."""
        return self._call_at(self._address(node_id), message, version)

    def connection(self, node_id: int) -> Connection:
        """Return the open connection to a broker, or a new one; OSError if it can't be reached."""
        return self._connect(self._address(node_id), self._connections)

    def produce_connection(self, node_id: int) -> Connection:
        """Return another connection, on which replies may wait while the cluster is asked."""
        return self._connect(self._address(node_id), self._produce_connections)

    def drop(self, connection: Connection) -> None:
        """Close a connection that is broken, or whose replies are not needed any more."""
        connection.close()
        for connections in (self._connections, self._produce_connections):
            for address, each in list(connections.items()):
                if each is connection:
                    del connections[address]

    def call_address(
        self, host: str, port: int, message: Any, version: int, *, timeout_s: float | None = None
    ) -> Any:
        """Send one request to a broker whose address was in another reply."""
        return self._call_at((host, port), message, version, timeout_s=timeout_s)

    def call_any(self, message: Any, version: int) -> Any:
        """Send one request to any broker that answers; PassingError if none does."""
        return self._call_any(message, version)

    def close(self) -> None:
        for connections in (self._connections, self._produce_connections):
            for each in connections.values():
                each.close()
            connections.clear()

    def retry(
        self,
        ask: Callable[[], _Result],
        what: str,
        *,
        timeout_s: float = limits.METADATA_TIMEOUT_S,
    ) -> _Result:
        """Call `ask` until it succeeds; SourceError with the last reason at the deadline."""
        deadline = time.monotonic() + timeout_s
        backoff_s = limits.RETRY_BACKOFF_S
        while True:
            try:
                return ask()
            except (PassingError, *CONNECTION_ERRORS) as error:
                if time.monotonic() + backoff_s > deadline:
                    raise self._no_answer(what, timeout_s, error) from error
                logger.debug("asking again for %s: %s", what, error)
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, limits.RETRY_BACKOFF_S_MAX)

    def _no_answer(self, what: str, timeout_s: float, error: Exception) -> SourceError:
        # A broker with TLS simply closes a connection without TLS.
        security = ", clientConfig if brokers encrypt or ask who is there"
        return SourceError(
            f"{self.settings.bootstrap_servers} gave no answer about {what} for {timeout_s:.0f} s: "
            f"{str(error).rstrip('.')}. Check kafka.bootstrap.servers"
            f"{security if self.settings.config_file is None else ''}, and that every partition "
            "has a leader"
        )

    def _by_leader(
        self, times: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]
    ) -> dict[int, list[TopicPartition]]:
        asked: dict[int, list[TopicPartition]] = {}
        for each in times:
            if each not in found:
                leader, _ = self.leader_of(each.topic, each.partition)
                asked.setdefault(leader, []).append(each)
        return asked

    def _read_offsets(
        self, leader: int, request: ListOffsetsRequest, found: dict[TopicPartition, int]
    ) -> None:
        reply = self.call(leader, request, LIST_OFFSETS_VERSION)
        trouble: PassingError | None = None
        for topic in reply.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                try:
                    _raise_unless_fine(each.error_code, f"{where}")
                except PassingError as error:
                    trouble = error
                else:
                    found[where] = each.offset
        if trouble is not None:
            raise trouble

    def _call_any(self, message: Any, version: int) -> Any:
        known = list(self._nodes.values())
        # An open connection first, then known brokers, then the configured addresses.
        addresses = dict.fromkeys((*self._connections, *known, *self._bootstrap))
        reason: Exception = PassingError("no address")
        for address in addresses:
            try:
                return self._call_at(address, message, version)
            except CONNECTION_ERRORS as error:
                reason = error
        if isinstance(reason, ssl.SSLCertVerificationError):
            # This is permanent, and has nothing to do with leaders.
            raise SourceError(
                f"{self.settings.bootstrap_servers}: the certificate of a broker is not trusted: "
                f"{reason}. Check ssl.ca.location in the file that clientConfig names, and that "
                "certificates have the names of kafka.bootstrap.servers"
            ) from reason
        raise PassingError(f"no broker answers: {reason}")

    def _call_at(
        self,
        address: tuple[str, int],
        message: Any,
        version: int,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        connection = self._connect(address, self._connections)
        try:
            return connection.call(message, version, timeout_s=timeout_s)
        except CONNECTION_ERRORS:
            self.drop(connection)
            raise

    def _address(self, node_id: int) -> tuple[str, int]:
        """Return a broker's address; OSError if the broker left after the leaders were read."""
        if node_id not in self._nodes:
            raise ConnectionError(f"broker {node_id} is no longer in the cluster")
        return self._nodes[node_id]

    def _connect(
        self, address: tuple[str, int], connections: dict[tuple[str, int], Connection]
    ) -> Connection:
        found = connections.get(address)
        if found is None:
            found = Connection(
                *address,
                client_id=self.settings.client_id,
                receive_buffer_bytes=self.settings.receive_buffer_bytes,
                timeout_s=self.settings.request_timeout_s,
                security=read_security(self.settings.config_file),
            )
            connections[address] = found
        return found


_kept: dict[tuple[int, ClientSettings, bool], Cluster] = {}


def keep_cluster(settings: ClientSettings, *, is_sink: bool = False) -> Cluster:
    """Return this process's cluster: Spark reuses Python workers, and connections stay open.

    A sink has its own: if a task reads while it writes, each must get its own replies.
    """
    key = (os.getpid(), settings, is_sink)
    if key not in _kept:
        _kept[key] = Cluster(settings)
    return _kept[key]


def _topic(each: Any) -> Topic:
    leaders = {
        part.partition_index: None if part.leader_id < 0 else part.leader_id
        for part in each.partitions
    }
    epochs = {part.partition_index: part.leader_epoch for part in each.partitions}
    return Topic(each.name, bytes(each.topic_id or NO_TOPIC_ID), leaders, epochs)


def _list_offsets_request(
    asked: list[TopicPartition], times: Mapping[TopicPartition, int], is_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for each in asked:
        topic = topics.setdefault(each.topic, ListOffsetsTopic(each.topic))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=each.partition, timestamp=times[each])
        )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=int(is_committed), topics=list(topics.values())
    )


def _raise_unless_fine(code: int, what: str) -> None:
    if code == ErrorCode.NONE:
        return
    error = error_of(code)
    text = f"{what}: {error.name}: {error.description}"
    if error.retriable:
        raise PassingError(text)
    raise SourceError(text)
