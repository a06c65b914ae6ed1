"""DeleteRecords (key 21), versions 0-2.

Behaviour: moves the log's start of a partition that this broker leads up to an offset, or with -1
up to the last stable offset, which is the high watermark where no transaction is open; segments
wholly below it go at the next retention round. Answers with the low watermark, the first offset
that can still be read. An offset above the last stable offset waits, within `timeout_ms` and for
some seconds, until transactions below it have ended: who has just committed one may delete its
records, whose markers are on their way. Then it answers OFFSET_OUT_OF_RANGE (Kafka lets it go up to
the high watermark at once, and loses the beginning of a transaction). One below the start changes
nothing. Internal topics answer INVALID_TOPIC_EXCEPTION, topics that are only compacted
POLICY_VIOLATION.
Versions:  2 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX, UNDECIDED_RECORDS_WAIT_MS
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


@handles(ApiKey.DELETE_RECORDS, versions=(0, 2), access=Access.BY_RESOURCE)
def delete_records(
    request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Pending:
    """Answer every partition on its own."""
    count = sum(len(topic.partitions) for topic in request.topics)
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DeleteRecords names {count} partitions")
    deletion = _Deletion(request, context)
    wait_ms = min(request.timeout_ms, UNDECIDED_RECORDS_WAIT_MS)
    if not deletion.undecided or wait_ms <= 0:
        return deletion.response
    broker = context.broker
    keys = [(topic, result.partition_index) for topic, _, result in deletion.undecided]
    parked = broker.fetch_purgatory.park(deletion, keys, broker.clock.monotonic_ms() + wait_ms)
    if parked is None:
        return deletion.response
    context.parked = parked
    return PENDING


class _Deletion:
    """A request, what it has got so far, and what waits for the end of transactions."""

    __slots__ = ("_context", "response", "undecided")

    def __init__(self, request: DeleteRecordsRequest, context: RequestContext) -> None:
        self._context = context
        self.response = DeleteRecordsResponse()
        self.undecided: list[tuple[str, int, DeleteRecordsPartitionResult]] = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                result = DeleteRecordsPartitionResult(asked.partition_index)
                results.append(result)
                if self._is_undecided(topic.name, asked.offset, result):
                    self.undecided.append((topic.name, asked.offset, result))
            self.response.topics.append(DeleteRecordsTopicResult(topic.name, results))

    def try_complete(self) -> bool:
        self.undecided = [each for each in self.undecided if self._is_undecided(*each)]
        if self.undecided:
            return False
        self.on_expire()
        return True

    def on_expire(self) -> None:
        self._context.respond(self.response)

    def _is_undecided(self, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> bool:
        """Delete, or fill in why not; tell whether that may change with the next marker."""
        context = self._context
        result.error_code, result.low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
        try:
            context.require(Operation.DELETE, ResourceType.TOPIC, topic)
            partition = _find(context.broker, topic, result.partition_index)
            if partition.last_stable_offset < offset <= partition.high_watermark:
                result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return True
            result.low_watermark = partition.delete_records(offset)
        except KafkaError as error:
            result.error_code = error.code
        return False


def _find(broker: Broker, topic: str, index: int) -> Partition:
    """Return the partition, if records may be deleted from it here."""
    if is_internal_topic(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} belongs to the cluster")
    partition = broker.leading((topic, index))
    if not partition.log.config.deletes_by_retention:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted, not deleted from")
    return partition
