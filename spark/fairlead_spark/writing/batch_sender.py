"""Sends the batches of an idempotent producer, each partition's in order and one at a time.

A broker has one request of a task at a time, with the next batch of each partition that it leads,
and the task goes on encoding meanwhile. A batch without an acknowledgement is sent again unchanged,
to the present leader: a broker recognizes a repetition by its sequence numbers. So nothing is
written twice or in another order, whatever the outcome of the first attempt.
"""

import logging
import select
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fairlead_spark import limits
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster, PassingError
from fairlead_spark.connection import Connection
from fairlead_spark.errors import FENCED_IN_PRODUCE, SinkError, error_of
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.writing.outgoing_batches import PRODUCE_VERSION, OutgoingBatch, Producer, halve
from fairlead_spark.writing.sink_transaction import SinkTransaction
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

logger = logging.getLogger(__name__)

INIT_PRODUCER_ID_VERSION: Final = 4
_ALL: Final = -1
_WRITTEN: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_ENDED: Final = (
    " The task's transaction was ended: it took longer than kafka.transaction.timeout.ms, or "
    "another attempt or driver took its place"
)


@dataclass
class _Lane:
    """One partition's batches, oldest first. `failing_since`: since when the first one fails."""

    batches: deque[OutgoingBatch] = field(default_factory=deque)
    is_asked: bool = False
    not_before: float = 0.0
    failing_since: float | None = None


class _Asked(NamedTuple):
    """A request that has no reply yet."""

    connection: Connection
    version: int
    sent: int
    places: list[TopicPartition]
    deadline: float


class BatchSender:
    """For one task. After an error it cannot be used any more and must be closed."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        request_bytes_max: int,
        delivery_timeout_s: float,
        transaction: SinkTransaction | None = None,
    ) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._request_bytes_max = request_bytes_max
        self._delivery_timeout_s = delivery_timeout_s
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._asked: dict[int, _Asked] = {}
        self._left_at: float | None = None
        self.bytes_waiting = 0
        self.batch_bytes_max: dict[str, int] = {}
        """Batch sizes of topics with a lower limit than others."""

    def begin(self) -> Producer:
        """Return a producer id for this task's batches; SourceError if no broker gives one."""
        if self._transaction is not None:
            begun = self._transaction.begin()
            return Producer(begun.producer_id, begun.producer_epoch, is_transactional=True)
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=round(self._cluster.settings.request_timeout_s * 1000),
        )

        def ask() -> Producer:
            reply = self._cluster.call_any(request, INIT_PRODUCER_ID_VERSION)
            if reply.error_code != ErrorCode.NONE:
                error = error_of(reply.error_code)
                text = f"no producer id: {error.name}: {error.description}"
                raise PassingError(text) if error.retriable else SinkError(text)
            return Producer(reply.producer_id, reply.producer_epoch)

        return self._cluster.retry(ask, "a producer id")

    def add(self, batch: OutgoingBatch) -> None:
        """Take a batch for later; `send` sends it."""
        self._lanes.setdefault(batch.where, _Lane()).batches.append(batch)
        self.bytes_waiting += len(batch.data)

    def send(self, *, until_bytes: int | None = None) -> None:
        """Send what can be sent, and read the replies that have arrived.

        With `until_bytes` it continues until at most this many bytes are unacknowledged. SinkError
        for a refused batch.
        """
        self._count_no_absence()
        try:
            while True:
                self._take_replies(0)
                self._ask_leaders(time.monotonic())
                if until_bytes is None or self.bytes_waiting <= until_bytes:
                    return
                self._take_replies(limits.SINK_WAIT_S)
        finally:
            self._left_at = time.monotonic()

    def close(self) -> None:
        """Close the connections whose replies will not be read."""
        for asked in self._asked.values():
            self._cluster.drop(asked.connection)
        self._asked.clear()

    def _count_no_absence(self) -> None:
        """Do not count time without attempts as failure: rows may be long in coming."""
        if self._left_at is None:
            return
        absence_s = time.monotonic() - self._left_at
        for lane in self._lanes.values():
            if lane.failing_since is not None:
                lane.failing_since += absence_s

    def _ask_leaders(self, now: float) -> None:
        due: dict[int, list[TopicPartition]] = {}
        for where, lane in self._lanes.items():
            if not lane.batches or lane.is_asked or now < lane.not_before:
                continue
            try:
                leader, _ = self._cluster.leader_of(where.topic, where.partition)
            except PassingError as error:
                self._cluster.forget_leaders()
                self._put_off(where, str(error))
            else:
                if leader not in self._asked:
                    due.setdefault(leader, []).append(where)
        for leader, places in due.items():
            self._ask(leader, self._fitting(places))

    def _fitting(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Return as many as fit into a request, at least one; the others are next."""
        size = 0
        fitting: list[TopicPartition] = []
        for where in places:
            size += len(self._lanes[where].batches[0].data)
            if fitting and size > self._request_bytes_max:
                break
            fitting.append(where)
        for where in fitting:
            # Move it behind those that had to wait.
            self._lanes[where] = self._lanes.pop(where)
        return fitting

    def _ask(self, leader: int, places: list[TopicPartition]) -> None:
        timeout_s = self._cluster.settings.request_timeout_s
        topics: dict[str, TopicProduceData] = {}
        for where in places:
            topic = topics.setdefault(where.topic, TopicProduceData(name=where.topic))
            data = self._lanes[where].batches[0].data
            topic.partition_data.append(PartitionProduceData(where.partition, data))
        request = ProduceRequest(
            acks=_ALL, timeout_ms=round(timeout_s * 1000), topic_data=list(topics.values())
        )
        connection: Connection | None = None
        try:
            if self._transaction is not None:
                self._transaction.add(places)
                request.transactional_id = self._transaction.transactional_id
            connection = self._cluster.produce_connection(leader)
            version = connection.version_of(request.API_KEY, PRODUCE_VERSION)
            sent = connection.send(request, version)
        except (PassingError, *CONNECTION_ERRORS) as error:
            self._lose(connection, places, str(error))
            return
        deadline = time.monotonic() + timeout_s
        self._asked[leader] = _Asked(connection, version, sent, places, deadline)
        for where in places:
            self._lanes[where].is_asked = True

    def _take_replies(self, wait_s: float) -> None:
        if not self._asked:
            time.sleep(wait_s)
            return
        poll = select.poll()
        leaders = {asked.connection.fileno(): leader for leader, asked in self._asked.items()}
        for number in leaders:
            poll.register(number, select.POLLIN)
        readable = {leaders[number] for number, _ in poll.poll(wait_s * 1000)}
        now = time.monotonic()
        for leader, asked in list(self._asked.items()):
            if leader in readable:
                self._take_reply(leader, asked)
            elif now > asked.deadline:
                self._end(leader)
                reason = f"broker {leader} at {asked.connection.address} does not answer"
                self._lose(asked.connection, asked.places, reason)

    def _take_reply(self, leader: int, asked: _Asked) -> None:
        self._end(leader)
        try:
            reply = asked.connection.receive(
                ProduceRequest.API_KEY,
                asked.version,
                asked.sent,
                timeout_s=self._cluster.settings.request_timeout_s,
            )
        except CONNECTION_ERRORS as error:
            self._lose(asked.connection, asked.places, str(error))
            return
        answers = {
            TopicPartition(topic.name, each.index): each
            for topic in reply.responses
            for each in topic.partition_responses
        }
        for where in asked.places:
            answer = answers.get(where)
            if answer is None:
                self._put_off(where, f"broker {leader} answers nothing")
            else:
                self._judge(where, leader, error_of(answer.error_code), answer.error_message)

    def _judge(self, where: TopicPartition, leader: int, error: ErrorCode, said: Any) -> None:
        lane = self._lanes[where]
        batch = lane.batches[0]
        if error in _WRITTEN:
            lane.batches.popleft()
            self.bytes_waiting -= len(batch.data)
            lane.failing_since, lane.not_before = None, 0.0
            return
        text = f"{error.name}: {said or error.description}"
        if error in _TOO_LARGE and batch.records > 1:
            # If an earlier attempt was written after all, brokers refuse a half by its numbers.
            lane.batches.popleft()
            self.batch_bytes_max[where.topic] = len(batch.data) // 2
            first, second = halve(batch)
            lane.batches.extendleft((second, first))
            self.bytes_waiting += len(first.data) + len(second.data) - len(batch.data)
            return
        if not error.retriable:
            ended = _ENDED if self._transaction is not None and error in FENCED_IN_PRODUCE else ""
            raise SinkError(
                f"{batch.records} rows cannot be written to {where}: broker {leader} answers "
                f"{text}{ended}"
            )
        self._cluster.forget_leaders()
        self._put_off(where, f"broker {leader} answers {text}")

    def _lose(
        self, connection: Connection | None, places: list[TopicPartition], reason: str
    ) -> None:
        """Handle a lost connection: what was sent on it may have been written or not."""
        if connection is not None:
            self._cluster.drop(connection)
        self._cluster.forget_leaders()
        for where in places:
            self._put_off(where, reason)

    def _put_off(self, where: TopicPartition, reason: str) -> None:
        """Let a batch wait before the next attempt; SinkError if it has been tried for too long."""
        lane, now = self._lanes[where], time.monotonic()
        lane.not_before = now + limits.RETRY_BACKOFF_S
        lane.failing_since = now if lane.failing_since is None else lane.failing_since
        logger.info("rows for %s are not acknowledged yet: %s", where, reason)
        if now - lane.failing_since > self._delivery_timeout_s:
            raise SinkError(
                f"rows for {where} were not acknowledged for {self._delivery_timeout_s:.0f} s: "
                f"{reason}. Check that the partition has a leader and min.insync.replicas in sync, "
                "or raise kafka.delivery.timeout.ms. The task may be run again: rows that were "
                f"acknowledged are then {'aborted' if self._transaction else 'written twice'}"
            )

    def _end(self, leader: int) -> None:
        for where in self._asked.pop(leader).places:
            self._lanes[where].is_asked = False
