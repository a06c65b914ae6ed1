"""Reads one range of a partition; the next fetch is sent before the last one is decoded."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from fairlead_spark import limits
from fairlead_spark.cluster import (
    CONNECTION_ERRORS,
    Cluster,
    MissingTopicError,
    PassingError,
    Topic,
)
from fairlead_spark.connection import Connection
from fairlead_spark.errors import DataLossError, SourceError, error_of
from fairlead_spark.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, NO_TOPIC_ID, TopicPartition
from fairlead_spark.reading.fetched_batches import FetchedRecords, find_batches
from fairlead_spark.reading.planning import OffsetRange
from fairlead_spark.reading.record_columns import decode_records
from fairlead_spark.reading.rows import RowBuilder
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

logger = logging.getLogger(__name__)

FETCH_VERSION: Final = 13
"""Since version 13 a topic is named by its id, so a new topic of the same name is not mistaken for
the old one."""
_WHOLE_LOG_SEEN: Final = 2
"""Replies without a batch, while the log is longer, after which the reader believes them."""


class _OtherTopicError(MissingTopicError):
    """Another topic now has the name of the wanted one."""


@dataclass(frozen=True)
class ReadSettings:
    """The settings that all tasks of a query share."""

    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_s: float


class _Request(NamedTuple):
    """A fetch that was sent, and how to read the answer."""

    connection: Connection
    version: int
    sent: int
    request: FetchRequest


class RangeReader:
    """Iterate `batches` once."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, settings: ReadSettings) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._settings = settings
        self._position = wanted.start
        self._where = TopicPartition(wanted.topic, wanted.partition)
        self._rows = RowBuilder(
            wanted.topic, wanted.partition, include_headers=settings.include_headers
        )
        self._leader = "none known"
        self._empty_replies = 0
        self._missing_since: float | None = None
        """When the topic was first reported missing, or replaced, without a success since."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of the range. SourceError, DataLossError if that fails."""
        deadline = time.monotonic() + self._settings.poll_timeout_s
        pending: _Request | None = None
        try:
            while self._position < self._wanted.until:
                fetched: FetchedRecords | None = None
                reached = self._position
                try:
                    pending = pending or self._ask()
                    fetched, asked, pending = self._receive(pending), pending, None
                except (PassingError, *CONNECTION_ERRORS) as error:
                    if pending is not None:
                        self._cluster.drop(pending.connection)
                        pending = None
                    self._recover(error, deadline)
                if fetched is not None:
                    pending = self._ask_ahead(asked, fetched.next_offset)
                    yield from self._decode(fetched)
                    self._position = fetched.next_offset
                if self._position > reached:
                    deadline = time.monotonic() + self._settings.poll_timeout_s
                elif self._missing_since is None and time.monotonic() > deadline:
                    raise self._timed_out(PassingError("the broker sends no records"))
        finally:
            if pending is not None:
                # Its reply will not be read, so no other user of the connection may get it.
                self._cluster.drop(pending.connection)

    def _ask(self) -> _Request:
        """Send a fetch to the leader. PassingError, or the error of a broken connection."""
        leader, topic = self._find_leader()
        connection = self._cluster.connection(leader)
        self._leader = f"{leader} at {connection.address}"
        version = connection.version_of(FetchRequest.API_KEY, FETCH_VERSION)
        request = self._build_request(topic)
        try:
            return _Request(connection, version, connection.send(request, version), request)
        except CONNECTION_ERRORS:
            # A later user of the cluster might never use it, and so not notice the error.
            self._cluster.drop(connection)
            raise

    def _ask_ahead(self, asked: _Request, offset: int) -> _Request | None:
        """Fetch the next records from the same leader; None at the end of the range or on failure.

        It makes no other request: the last reply is still in the connection's buffer.
        """
        if offset >= self._wanted.until:
            return None
        request = asked.request
        request.topics[0].partitions[0].fetch_offset = offset
        try:
            return asked._replace(sent=asked.connection.send(request, asked.version))
        except CONNECTION_ERRORS:
            self._cluster.drop(asked.connection)
            self._cluster.forget_leaders()
            return None

    def _build_request(self, topic: Topic) -> FetchRequest:
        wanted, settings = self._wanted, self._cluster.settings
        partition = FetchPartition(
            partition=wanted.partition,
            current_leader_epoch=topic.leader_epochs.get(wanted.partition, -1),
            fetch_offset=self._position,
            partition_max_bytes=settings.fetch_bytes,
        )
        # An offset from a checkpoint of Spark's Kafka source has no topic id.
        topic_id = topic.topic_id if wanted.topic_id == NO_TOPIC_ID else wanted.topic_id
        return FetchRequest(
            max_wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_bytes,
            isolation_level=int(settings.is_read_committed),
            topics=[FetchTopic(topic=wanted.topic, topic_id=topic_id, partitions=[partition])],
        )

    def _receive(self, asked: _Request) -> FetchedRecords | None:
        """Return the records of a reply; None if it has none and the reader has to ask again."""
        settings = self._cluster.settings
        reply = asked.connection.receive(
            FetchRequest.API_KEY,
            asked.version,
            asked.sent,
            timeout_s=settings.request_timeout_s + settings.fetch_wait_ms / 1000,
        )
        self._raise_for(reply.error_code)
        if not reply.responses or not reply.responses[0].partitions:
            self._missing_since = None
            self._wait_for_quota(reply.throttle_time_ms)
            return None
        partition = reply.responses[0].partitions[0]
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leave_gap()
            return None
        self._raise_for(partition.error_code)
        self._missing_since = None
        fetched = find_batches(
            f"{self._where} (leader {self._leader})",
            asked.connection.frame,
            memoryview(partition.records or b""),
            partition.aborted_transactions or (),
            is_crc_checked=settings.is_crc_checked,
        )
        if fetched is None:
            if reply.throttle_time_ms:
                self._wait_for_quota(reply.throttle_time_ms)
            else:
                self._notice_end(partition)
            return None
        self._empty_replies = 0
        return fetched

    def _wait_for_quota(self, throttle_ms: int) -> None:
        """Wait if a broker throttles this client.

        The broker then replies at once, without records (KIP-219); that is no end of the log.
        """
        logger.info("%s: %s throttles for %d ms", self._where, self._leader, throttle_ms)
        time.sleep(min(max(throttle_ms / 1000, limits.RETRY_BACKOFF_S), limits.THROTTLE_S_MAX))

    def _decode(self, fetched: FetchedRecords) -> Iterator[pa.RecordBatch]:
        start, until = self._position, self._wanted.until
        for group in fetched.groups(start, until):
            try:
                columns = decode_records(group.data, group.bodies).slice(start, until)
                yield from self._rows.build(columns)
            except RemoteProtocolError as error:
                raise fetched.damaged(group.bodies[0].base_offset, str(error)) from error

    def _notice_end(self, partition: Any) -> None:
        """Note that everything is read if the log ends with offsets without records.

        These records were aborted or compacted.
        """
        is_committed = self._cluster.settings.is_read_committed
        end = partition.last_stable_offset if is_committed else partition.high_watermark
        if end < self._wanted.until:
            self._empty_replies = 0
            return
        self._empty_replies += 1
        if self._empty_replies >= _WHOLE_LOG_SEEN and not self._is_elsewhere():
            self._position = self._wanted.until

    def _is_elsewhere(self) -> bool:
        """Tell whether the next records are in remote storage (KIP-405).

        A broker that waits in vain for that storage also replies without records, repeatedly.
        """
        found = self._cluster.list_offsets({self._where: EARLIEST_LOCAL})
        return self._position < found[self._where]

    def _leave_gap(self) -> None:
        """Continue at the start of the log if the wanted offset is gone, or fail."""
        both = {
            sentinel: self._cluster.list_offsets({self._where: sentinel})[self._where]
            for sentinel in (EARLIEST, LATEST)
        }
        earliest, latest = both[EARLIEST], both[LATEST]
        if earliest <= self._position <= latest:
            raise PassingError(f"{self._where}: offset {self._position} is out of range for now")
        if self._position > latest:
            self._lose(
                f"offset {self._position} of {self._where} lies behind the end of its log, "
                f"{latest}: records were lost with their leader, or deleted",
                "Start the query with another checkpointLocation",
            )
            self._position = self._wanted.until
            return
        if not self._wanted.is_from_earliest:
            self._lose(
                f"offsets {self._position} to {min(earliest, self._wanted.until) - 1} of "
                f"{self._where} are no longer there, its log begins at {earliest}: retention or a "
                "deletion was faster than the query",
                "Raise the topic's retention.ms and retention.bytes",
            )
        self._position = min(earliest, self._wanted.until)

    def _lose(self, what: str, advice: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{what}. {advice}; to go on without these records set failOnDataLoss to false"
            )
        logger.warning("%s; going on, because failOnDataLoss is false", what)

    def _find_leader(self) -> tuple[int, Topic]:
        """Return the leader's node id; PassingError if there is none."""
        wanted = self._wanted
        leader, topic = self._cluster.leader_of(wanted.topic, wanted.partition)
        if not self._is_wanted(topic):
            # The metadata in this worker may be older than the query.
            self._cluster.forget_leaders()
            leader, topic = self._cluster.leader_of(wanted.topic, wanted.partition)
        if not self._is_wanted(topic):
            # The broker may not know the wanted topic yet, if that is the newer one.
            raise _OtherTopicError(
                f"topic {topic.name} was deleted and made again while {wanted} was read"
            )
        return leader, topic

    def _is_wanted(self, topic: Topic) -> bool:
        wanted = self._wanted.topic_id
        return NO_TOPIC_ID in (wanted, topic.topic_id) or topic.topic_id == wanted

    def _raise_for(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        error = error_of(code)
        text = f"broker {self._leader} answers {error.name}: {error.description}"
        if error == ErrorCode.CORRUPT_MESSAGE:
            raise SourceError(
                f"{self._where} at offset {self._position}: {text} Another replica may hold a good "
                "copy; to go on behind it, start anew with startingOffsets after that batch"
            )
        if error.retriable:
            raise PassingError(text)
        raise SourceError(f"{self._where} at offset {self._position}: {text}")

    def _recover(self, error: Exception, deadline: float) -> None:
        """Look for the leader again after a moment; fail after the deadline."""
        now = time.monotonic()
        # A missing topic is not reported as a time-out, however short that is, and however long
        # the machine was suspended meanwhile.
        patience_s = min(limits.MISSING_TOPIC_S, self._settings.poll_timeout_s / 2)
        if not isinstance(error, MissingTopicError):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since > patience_s:
            self._lose_topic(error)
            self._position = self._wanted.until
            return
        if now > deadline and self._missing_since is None:
            raise self._timed_out(error) from error
        logger.info("%s at offset %d: %s", self._where, self._position, error)
        self._cluster.forget_leaders()
        time.sleep(limits.RETRY_BACKOFF_S)

    def _lose_topic(self, error: MissingTopicError) -> None:
        if isinstance(error, _OtherTopicError):
            self._lose(str(error), "Start the query with another checkpointLocation")
        else:
            self._lose(
                f"{error}: it was deleted while {self._wanted} was read",
                "Create it again and start the query with another checkpointLocation",
            )

    def _timed_out(self, error: Exception) -> SourceError:
        return SourceError(
            f"no records from {self._where} at offset {self._position} (leader {self._leader}) for "
            f"{self._settings.poll_timeout_s:.0f} s: {error}; check that the partition has a "
            "leader, or raise kafkaConsumer.pollTimeoutMs"
        )
