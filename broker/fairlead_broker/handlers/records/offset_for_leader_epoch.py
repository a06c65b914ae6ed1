"""OffsetForLeaderEpoch (key 23), versions 2-4.

Behaviour: where the asked epoch ended in this leader's log, with the largest epoch not above it.
Consumers use it to find out whether they read records that a failover took back. An epoch that
cannot be placed answers -1 and -1 without an error. Who may act for the cluster needs no right on
the topics: the request was one between brokers alone before KIP-320. Nothing is looked up before
the requests in front of this one on its connection have their answers.
Versions:  3 replica_id (-2 for consumers) · 4 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), access=Access.BY_RESOURCE)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer from the epoch cache of each log."""
    count = count_named(topic.partitions for topic in request.topics)
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"OffsetForLeaderEpoch names {count} partitions")
    acts_for_cluster = context.would_allow_cluster(Operation.CLUSTER_ACTION)
    is_refused = request.replica_id >= 0 and request.replica_id not in context.channel.replica_ids
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                if is_refused:
                    raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                if not acts_for_cluster:
                    context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
                answers.append(_answer(topic.topic, asked, context))
            except KafkaError as error:
                answers.append(EpochEndOffset(partition=asked.partition, error_code=error.code))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(topic: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    partition = context.broker.leading(
        (topic, asked.partition), current_leader_epoch=asked.current_leader_epoch
    )
    end = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
    )
