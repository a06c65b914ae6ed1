"""DeleteRecords (key 21), versions 0-2.

Behaviour: moves the log's start of a partition that this broker leads up to an offset, or with -1
up to the last stable offset, which is the high watermark where no transaction is open; segments
wholly below it go at the next retention round. Waits, within `timeout_ms` and some minutes at most,
until the replicas of all brokers in service start there, too, so that the records stay deleted
under any next leader. Answers with the low watermark, the lowest of these starts. After the
time-out it is REQUEST_TIMED_OUT, although this replica has deleted the records and the others will.
An offset above the last stable offset waits, within `timeout_ms` and for some seconds, until
transactions below it have ended: a client that has just committed a transaction may delete its
records, although their markers are still being written. Then it answers OFFSET_OUT_OF_RANGE (Kafka
lets it go up to the high watermark at once, and loses the beginning of a transaction). An offset
below the start changes nothing. Internal topics answer INVALID_TOPIC_EXCEPTION, topics that are
only compacted POLICY_VIOLATION.
Versions:  2 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import (
    PARKED_WAIT_MAX_MS,
    PARTITIONS_PER_REQUEST_MAX,
    UNDECIDED_RECORDS_WAIT_MS,
)
from fairlead_broker.replication.purgatory import PARKED_FAULT
from fairlead_model.ids import is_internal_topic
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker
    from fairlead_broker.replication.partition import Partition

NO_LOW_WATERMARK: Final = -1
_ALL_THAT_MAY_GO: Final = -1


@handles(ApiKey.DELETE_RECORDS, versions=(0, 2), access=Access.BY_RESOURCE)
def delete_records(
    request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Pending:
    """Answer every partition on its own."""
    count = count_named(topic.partitions for topic in request.topics)
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DeleteRecords names {count} partitions")
    return _Deletion(request, context).wait()


class _Deletion:
    """A request, and what it has got so far.

    `_undecided` are partitions where transactions have to end first, `_unfollowed` those of which
    a follower has yet to delete. Of each: topic, offset, and the result, which holds what is
    answered if it stays like this.
    """

    __slots__ = ("_begun_ms", "_context", "_response", "_undecided", "_unfollowed", "_wait_ms")

    def __init__(self, request: DeleteRecordsRequest, context: RequestContext) -> None:
        self._context = context
        self._begun_ms = context.broker.clock.monotonic_ms()
        self._wait_ms = min(request.timeout_ms, PARKED_WAIT_MAX_MS)
        self._response = DeleteRecordsResponse()
        self._undecided: list[tuple[str, int, DeleteRecordsPartitionResult]] = []
        self._unfollowed: list[tuple[str, int, DeleteRecordsPartitionResult]] = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                result = DeleteRecordsPartitionResult(asked.partition_index)
                results.append(result)
                self._undecided.append((topic.name, asked.offset, result))
            self._response.topics.append(DeleteRecordsTopicResult(topic.name, results))
        self._look()

    def wait(self) -> DeleteRecordsResponse | Pending:
        """Park while something may still come of it; else return the answer."""
        wait_ms = self._wait_ms
        if self._undecided:
            wait_ms = min(wait_ms, UNDECIDED_RECORDS_WAIT_MS)
        awaited = [*self._undecided, *self._unfollowed]
        if not awaited or wait_ms <= 0:
            return self._response
        keys = [(topic, result.partition_index) for topic, _, result in awaited]
        purgatory = self._context.broker.fetch_purgatory
        parked = purgatory.park(self, keys, self._begun_ms + wait_ms)
        if parked is None:
            return self._response
        self._context.parked = parked
        return PENDING

    def try_complete(self) -> bool:
        self._look()
        if self._undecided or self._unfollowed:
            return False
        self._context.respond(self._response)
        return True

    def on_expire(self) -> None:
        if self._undecided and self._unfollowed:
            # No transaction is waited for any longer, but followers may be.
            self._undecided.clear()
            if self.wait() is PENDING:
                return
        self._context.respond(self._response)

    def on_fault(self) -> None:
        self._context.close_connection(PARKED_FAULT)

    def _look(self) -> None:
        """Find out what still waits, and delete where nothing stands against it any more."""
        self._undecided = [each for each in self._undecided if self._is_undecided(*each)]
        self._unfollowed = [each for each in self._unfollowed if not self._is_followed(*each)]

    def _is_undecided(self, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> bool:
        """Delete, or fill in why not; tell whether that may change with the next marker."""
        context = self._context
        try:
            context.require(Operation.DELETE, ResourceType.TOPIC, topic)
            partition = _find(context.broker, topic, result.partition_index)
            if partition.last_stable_offset < offset <= partition.high_watermark:
                _refuse(result, ErrorCode.OFFSET_OUT_OF_RANGE)
                return True
            log_start_offset = partition.delete_records(offset)
        except KafkaError as error:
            _refuse(result, error.code)
            return False
        # Where the log starts later already, followers need not be farther than was asked for.
        target = log_start_offset if offset == _ALL_THAT_MAY_GO else offset
        self._unfollowed.append((topic, target, result))
        return False

    def _is_followed(self, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> bool:
        """Tell whether all replicas have deleted, or this broker can no longer know it."""
        try:
            low_watermark = _find(self._context.broker, topic, result.partition_index).low_watermark
        except KafkaError as error:
            _refuse(result, error.code)
            return True
        is_reached = low_watermark >= offset
        result.low_watermark = low_watermark
        result.error_code = ErrorCode.NONE if is_reached else ErrorCode.REQUEST_TIMED_OUT
        return is_reached


def _refuse(result: DeleteRecordsPartitionResult, code: ErrorCode) -> None:
    result.error_code, result.low_watermark = code, NO_LOW_WATERMARK


def _find(broker: Broker, topic: str, index: int) -> Partition:
    """Return the partition, if records may be deleted from it here."""
    if is_internal_topic(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} belongs to the cluster")
    partition = broker.leading((topic, index))
    config = partition.log.config
    if config.is_compacted and not config.deletes_by_retention:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted, not deleted from")
    return partition
