"""Fetch as followers use it: sessions only, topic ids only, on the brokers' listener only.

The same API as in `fetch`, with what replication adds: a fetch from an offset says that everything
below is in the follower's log, which may move the high watermark; records up to the log's end; a
leader epoch and a broker epoch that have to fit (R5, R11); a divergence instead of records where
the two logs part (R3). A fetch waits for records, or for a log start that has moved; a new high
watermark is sent with the next answer, because a separate answer would double the traffic of a busy
partition.

A second fetch of a session that comes while one is parked ends that wait: the follower has
something to say that can't wait for its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import PENDING, Pending
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.replication.divergence import diverging_end
from fairlead_broker.replication.follower_state import FetchPosition
from fairlead_broker.replication.purgatory import PARKED_FAULT
from fairlead_model.ids import NO_BROKER_EPOCH
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker
    from fairlead_broker.fetch_sessions.follower_sessions import FollowedPartition, FollowerSession
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.replication.purgatory import ParkedOperation

_NOTHING: Final = b""
_UNKNOWN: Final = -1
_UNCOMMITTED: Final = 0


def fetch_as_follower(
    request: FetchRequest, context: RequestContext, *, replica_id: int, broker_epoch: int
) -> FetchResponse | Pending:
    """Answer a fetch of another broker, now or when there are records."""
    broker = context.broker
    now_ms = broker.clock.monotonic_ms()
    registration = broker.image.brokers.get(replica_id)
    session = broker.follower_sessions.begin(
        replica_id=replica_id,
        broker_epoch=broker_epoch,
        session_id=request.session_id,
        epoch=request.session_epoch,
        now_ms=now_ms,
        registered_epoch=NO_BROKER_EPOCH if registration is None else registration.broker_epoch,
    )
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    if session.on_end is not None:
        # One fetch waits already; its answer may be empty, and this one comes after it.
        session.on_end()
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.forget(forgotten.topic_id, index)
    _take_positions(request, session, broker, now_ms)
    reply = _FollowerReply(
        session, context, min(request.max_bytes, broker.settings.fetch_max_bytes)
    )
    if request.max_wait_ms <= 0:
        return reply.build()
    if reply.is_worth_sending():
        response = reply.build()
        # Nothing may have come of it: records that lie elsewhere are found out by reading.
        if response.responses or reply.is_worth_sending():
            return response
    return reply.park(now_ms + request.max_wait_ms)


def _take_positions(
    request: FetchRequest, session: FollowerSession, broker: Broker, now_ms: int
) -> None:
    """Check the positions that the follower names, and take those that fit."""
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
        if count > PARTITIONS_PER_REQUEST_MAX:
            raise RemoteProtocolError("a fetch of too many partitions")
        for asked in topic.partitions:
            followed = session.name(topic.topic_id, asked.partition)
            followed.max_bytes = asked.partition_max_bytes
            followed.position = FetchPosition(
                asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch
            )
            partition = None
            try:
                partition = _find(followed, broker)
                session.watch(followed, partition)
                parting = diverging_end(
                    partition.log, asked.fetch_offset, asked.last_fetched_epoch, is_replica=True
                )
                if parting is None:
                    partition.record_fetch(
                        session.replica_id,
                        session.broker_epoch,
                        asked.fetch_offset,
                        now_ms,
                        log_start_offset=asked.log_start_offset,
                    )
                    followed.note_start(asked.log_start_offset, partition.log_start_offset)
                else:
                    # Nothing else of what it says counts (R3).
                    followed.refusal = _marks(partition, followed)
                    followed.refusal.diverging_epoch = EpochEndOffset(*parting)
            except KafkaError as error:
                is_start_wanted = error.code is ErrorCode.OFFSET_OUT_OF_RANGE
                followed.refusal = _failure(
                    followed, error.code, partition if is_start_wanted else None
                )


def _find(followed: FollowedPartition, broker: Broker) -> Partition:
    """Return the partition, led by this broker in the epoch that the follower means (R5)."""
    name = broker.topic_name(followed.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return broker.leading(
        (name, followed.index),
        topic_id=followed.topic_id,
        current_leader_epoch=followed.position.current_leader_epoch,
    )


class _FollowerReply:
    """The answer to one fetch: what of the session's news fits into it."""

    __slots__ = ("_context", "_max_bytes", "_parked", "_session")

    def __init__(self, session: FollowerSession, context: RequestContext, max_bytes: int) -> None:
        self._session = session
        self._context = context
        self._max_bytes = max_bytes
        self._parked: ParkedOperation | None = None

    def is_worth_sending(self) -> bool:
        """Tell whether there is something that shouldn't wait: records, a start, or an error."""
        for followed in self._session.news:
            if followed.refusal is not None or _is_lost(followed):
                return True
            partition = followed.partition
            if followed.arrival is not None and not followed.arrival.is_over:
                continue
            if partition is not None and followed.position.fetch_offset != partition.log_end_offset:
                if partition.has_outsiders and not self._allowance(partition, followed.max_bytes):
                    continue
                return True
            if partition is not None and followed.lacks_start(partition.log_start_offset):
                return True
            if (
                partition is not None
                and partition.hastens_followers
                and partition.high_watermark != followed.told_high_watermark
            ):
                return True
        return False

    def build(self) -> FetchResponse:
        """Read what is new, within the budget; what finds no room stays for the next answer."""
        session = self._session
        topics: list[FetchableTopicResponse] = []
        left = self._max_bytes
        for followed in list(session.news):
            if left <= 0:
                break
            data = self._answer(followed, left)
            if data is None:
                continue
            left -= len(data.records or _NOTHING)
            last = topics[-1] if topics else None
            if last is None or last.topic_id != followed.topic_id:
                last = FetchableTopicResponse("", followed.topic_id)
                topics.append(last)
            last.partitions.append(data)
        self._context.broker.metrics.replicated_out_bytes += self._max_bytes - left
        return FetchResponse(session_id=session.session_id, responses=topics)

    def _answer(self, followed: FollowedPartition, left: int) -> PartitionData | None:
        session = self._session
        data = followed.refusal
        partition = followed.partition
        if data is None and _is_lost(followed):
            data = _failure(followed, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if data is not None:
            return self._refuse(followed, data)
        if partition is None:
            return None
        fetch_offset = followed.position.fetch_offset
        data = _marks(partition, followed)
        if fetch_offset != partition.log_end_offset:
            wanted = min(followed.max_bytes, left)
            if partition.has_outsiders:
                wanted = self._allowance(partition, wanted)
                if not wanted:
                    return None
            try:
                records, _, followed.arrival = partition.read(
                    fetch_offset,
                    wanted,
                    isolation_level=_UNCOMMITTED,
                    replica_id=session.replica_id,
                    minimum_one_batch=left == self._max_bytes,
                )
            except KafkaError as error:
                return self._refuse(followed, _failure(followed, error.code, partition))
            if records is None:
                return None
            if partition.has_outsiders:
                throttle = self._context.broker.replication_throttle
                throttle.note_sent(partition, session.replica_id, len(records))
            data.records = records
            followed.is_answered = True
        del session.news[followed]
        is_news = followed.note_told(
            high_watermark=data.high_watermark, log_start_offset=data.log_start_offset
        )
        return data if is_news or followed.is_answered else None

    def _allowance(self, partition: Partition, wanted: int) -> int:
        """Return how much may be sent of a partition some replica of which is not in sync."""
        return self._context.broker.replication_throttle.allowance(partition, self._session, wanted)

    def _refuse(self, followed: FollowedPartition, data: PartitionData) -> PartitionData:
        """Return an answer without records, after which the follower names the partition again."""
        session = self._session
        if data.error_code:
            session.forget(followed.topic_id, followed.index)
        else:
            followed.is_answered = True
            session.news.pop(followed, None)
        return data

    def park(self, deadline_ms: int) -> FetchResponse | Pending:
        """Wait for news, for the deadline, or for the next fetch of the session."""
        parked = self._context.broker.fetch_purgatory.park(self, (), deadline_ms)
        if parked is None:
            return self.build()
        self._parked = parked
        self._context.parked = self
        self._session.on_news = self._on_news
        self._session.on_end = self._respond
        return PENDING

    def cancel(self) -> None:
        """Forget the connection, which is gone."""
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
            self._session.on_news = self._session.on_end = None

    def try_complete(self) -> bool:
        return False

    def on_expire(self) -> None:
        self._respond()

    def on_fault(self) -> None:
        self._context.close_connection(PARKED_FAULT)

    def _on_news(self) -> None:
        if self.is_worth_sending():
            self._respond()

    def _respond(self) -> None:
        self.cancel()
        self._context.respond(self.build())


def _is_lost(followed: FollowedPartition) -> bool:
    """Whether this broker doesn't lead the partition any more in the epoch that was asked for."""
    partition = followed.partition
    return partition is not None and (
        partition.leader is None or partition.leader_epoch != followed.position.current_leader_epoch
    )


def _marks(partition: Partition, followed: FollowedPartition) -> PartitionData:
    return PartitionData(
        partition_index=followed.index,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        records=_NOTHING,
    )


def _failure(
    followed: FollowedPartition, code: ErrorCode, partition: Partition | None = None
) -> PartitionData:
    """With the leader's log start where that helps: the follower may have to begin there (R17)."""
    return PartitionData(
        partition_index=followed.index,
        error_code=code,
        high_watermark=_UNKNOWN,
        log_start_offset=_UNKNOWN if partition is None else partition.log_start_offset,
        aborted_transactions=None,
        records=_NOTHING,
    )
