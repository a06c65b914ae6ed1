"""DeleteRecords (key 21), versions 0-2.

Behaviour: moves the log's start of a partition that this broker leads up to an offset, or with -1
up to the last stable offset, which is the high watermark where no transaction is open; segments
wholly below it go at the next retention round. Answers with the low watermark, the first offset
that can still be read. An offset above the last stable offset answers OFFSET_OUT_OF_RANGE (Kafka
lets it go up to the high watermark, and loses the beginning of a transaction), one below the start
changes nothing. Internal topics answer INVALID_TOPIC_EXCEPTION, topics that are only compacted
POLICY_VIOLATION.
Versions:  2 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
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

NO_LOW_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS, versions=(0, 2), access=Access.BY_RESOURCE)
def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Answer every partition on its own."""
    count = sum(len(topic.partitions) for topic in request.topics)
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DeleteRecords names {count} partitions")
    topics = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            code, low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
            try:
                context.require(Operation.DELETE, ResourceType.TOPIC, topic.name)
                low_watermark = _delete(
                    context.broker, topic.name, asked.partition_index, asked.offset
                )
            except KafkaError as error:
                code = error.code
            results.append(
                DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index,
                    low_watermark=low_watermark,
                    error_code=code,
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


def _delete(broker: Broker, topic: str, index: int, before_offset: int) -> int:
    if is_internal_topic(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} belongs to the cluster")
    partition = broker.leading((topic, index))
    if not partition.log.config.deletes_by_retention:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted, not deleted from")
    return partition.delete_records(before_offset)
