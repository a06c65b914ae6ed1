"""ListOffsets (key 2), versions 1-11.

Behaviour: earliest (-2) is the log's start, latest (-1) the high watermark, or with read_committed
the last stable offset; a timestamp finds the first record at or after it, -1 as offset if there is
none; -3 finds the record with the largest timestamp. There is no tiered storage, so the earliest
local offset (-4) is the log's start, and the latest tiered offset (-5) and the earliest pending
upload (-6) are -1, as with Kafka. Answers at once, but looks nothing up before the requests in
front of it on its connection have their answers: what a client hears last is the newest. After an
election, until the high watermark is known, everything but earliest answers OFFSET_NOT_AVAILABLE,
never an invented offset. A lookup by time that would block the broker for long is answered with an
earlier record, of the same batch or of one not far before it; the connection then waits as long as
its lookups took.
Versions:  2 isolation level · 4 leader epochs · 5 OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE
           before) · 6 flexible · 7 timestamp -3 · 8 timestamp -4 · 9 timestamp -5 · 10 a time-out,
           which is not needed here · 11 timestamp -6. Others below: UNSUPPORTED_VERSION.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import LOOKUP_MS_MAX, PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import repeated
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.replication.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_EPOCH = -1
FIRST_VERSION_WITH = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_VERSION_WITH_NOT_AVAILABLE = 5


class _LookupTime:
    """How long a request has been at it since its first lookup of a timestamp."""

    __slots__ = ("_begun_ms", "_context")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._begun_ms: int | None = None

    def is_much(self) -> bool:
        """Tell, before each lookup, whether those before have taken all the time there is."""
        now_ms = self._context.broker.clock.monotonic_ms()
        if self._begun_ms is None:
            self._begun_ms = now_ms
        return now_ms - self._begun_ms >= LOOKUP_MS_MAX

    def charge(self) -> None:
        """Have the peer wait as long as all others have waited for its lookups."""
        if self._begun_ms is not None:
            context = self._context
            context.channel.charge(context.broker.clock.monotonic_ms() - self._begun_ms)


@handles(ApiKey.LIST_OFFSETS, versions=(1, 11), access=Access.BY_RESOURCE)
def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Answer every partition on its own."""
    count = count_named(topic.partitions for topic in request.topics)
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"ListOffsets names {count} partitions")
    duplicates = repeated(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    time_spent = _LookupTime(context)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                if (topic.name, asked.partition_index) in duplicates:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                answers.append(_answer(request, topic.name, asked, context, time_spent))
            except KafkaError as error:
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=error.code
                    )
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    time_spent.charge()
    return ListOffsetsResponse(topics=topics)


def _answer(
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    context: RequestContext,
    time_spent: _LookupTime,
) -> ListOffsetsPartitionResponse:
    if request.replica_id >= 0 and not context.listener.is_internal:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    partition = context.broker.leading(
        (topic, asked.partition_index), current_leader_epoch=asked.current_leader_epoch
    )
    timestamp, offset, epoch = _look_up(
        partition, request, asked.timestamp, context.version, time_spent
    )
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if context.version >= FIRST_VERSION_WITH_EPOCHS else NO_EPOCH,
    )


def _look_up(
    partition: Partition,
    request: ListOffsetsRequest,
    timestamp: int,
    version: int,
    time_spent: _LookupTime,
) -> tuple[int, int, int]:
    """Return timestamp, offset and the epoch it was written in; all -1 where no record fits."""
    if timestamp < EARLIEST and version < FIRST_VERSION_WITH.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return NO_TIMESTAMP, start, partition.log.epochs.epoch_of(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NO_TIMESTAMP, NO_OFFSET, NO_EPOCH
    if request.replica_id < 0 and not partition.is_high_watermark_valid:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE
            if version >= FIRST_VERSION_WITH_NOT_AVAILABLE
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    end_offset = partition.end_offset_for_reader(
        isolation_level=request.isolation_level, replica_id=request.replica_id
    )
    if timestamp == LATEST:
        return NO_TIMESTAMP, end_offset, partition.leader_epoch
    is_hurried = time_spent.is_much()
    if timestamp == MAX_TIMESTAMP:
        found = partition.log.offset_of_max_timestamp(is_hurried=is_hurried)
        if found is not None and found.offset >= end_offset:
            found = None
    else:
        found = partition.log.offset_for_timestamp(
            timestamp, end_offset=end_offset, is_hurried=is_hurried
        )
    if found is None:
        return NO_TIMESTAMP, NO_OFFSET, NO_EPOCH
    return found.timestamp_ms, found.offset, found.leader_epoch
