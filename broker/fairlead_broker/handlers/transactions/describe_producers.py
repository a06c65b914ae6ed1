"""DescribeProducers (key 61), version 0.

Behaviour: what the leader of a partition remembers of its producers, idempotent and transactional:
epoch, last sequence and timestamp, the epoch of the coordinator that ended a transaction last, and
where an open transaction begins (-1: none is open). It is how `kafka-transactions` finds
transactions that nobody will end (KIP-664). Producers of which only the epoch is known, as after a
marker, have the last sequence -1.
Versions:  there is only this one.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import KafkaError, RemoteProtocolError
from fairlead_wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.log.producers.producer_state import ProducerEntry

_NO_SEQUENCE = -1


@handles(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), access=Access.BY_RESOURCE)
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Answer every partition on its own."""
    # Each partition once: it may have thousands of producers.
    asked: dict[str, dict[int, None]] = {}
    for each in request.topics:
        asked.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    count = sum(map(len, asked.values()))
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DescribeProducers names {count} partitions")
    topics = []
    for name, indexes in asked.items():
        answers = []
        for index in indexes:
            try:
                context.require(Operation.READ, ResourceType.TOPIC, name)
                producers = context.broker.leading((name, index)).log.producers
            except KafkaError as error:
                answers.append(PartitionResponse(index, error.code, error.message))
            else:
                answers.append(
                    PartitionResponse(index, active_producers=[*map(_described, producers)])
                )
        topics.append(TopicResponse(name, answers))
    return DescribeProducersResponse(topics=topics)


def _described(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else _NO_SEQUENCE,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
