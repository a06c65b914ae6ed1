"""DescribeProducers (key 61), version 0.

Behaviour: the state that a replica of a partition, leader or follower, keeps of its idempotent and
transactional producers: epoch, last sequence and timestamp, the epoch of the coordinator that ended
a transaction last, and where an open transaction begins (-1: none is open). Clients ask the leader,
or the broker that they name (`kafka-transactions --broker-id`); one without a replica answers
NOT_LEADER_OR_FOLLOWER. With it `kafka-transactions` finds transactions that no coordinator will end
(KIP-664). Producers of which only the epoch is known, as after a marker, have the last sequence -1.
A name that no topic can have is answered with INVALID_TOPIC_EXCEPTION, whatever the client may
read. Beyond 5,000 producers the broker serves other requests meanwhile; one reply has at most
500,000.
Versions:  there is only this one.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.in_turns import in_parts, in_turns
from fairlead_broker.limits import DESCRIBED_MAX, PARTITIONS_PER_REQUEST_MAX
from fairlead_model.ids import topic_name_problem
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.local_replicas import PartitionKey
    from fairlead_broker.log.producers.producer_state import ProducerEntry
    from fairlead_broker.replication.partition import Partition

_NO_SEQUENCE = -1


@handles(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), access=Access.BY_RESOURCE)
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse | Pending:
    """Answer every partition on its own."""
    if len(request.topics) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DescribeProducers names {len(request.topics)} topics")
    # Each partition once: it may have thousands of producers.
    asked: dict[str, dict[int, None]] = {}
    for each in request.topics:
        asked.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    keys = [(name, index) for name, indexes in asked.items() for index in indexes]
    if len(keys) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DescribeProducers names {len(keys)} partitions")
    known = context.broker.partitions
    count = len(keys) + sum(len(known[key].log.producers) for key in keys if key in known)
    if count > DESCRIBED_MAX:
        raise RemoteProtocolError(f"DescribeProducers asks for {count} partitions and producers")
    response = DescribeProducersResponse()
    return in_turns(context, _steps(asked, context, response), count, lambda: response)


def _steps(
    asked: dict[str, dict[int, None]], context: RequestContext, response: DescribeProducersResponse
) -> Iterator[None]:
    for name, indexes in asked.items():
        topic = TopicResponse(name)
        response.topics.append(topic)
        for index in indexes:
            partition, producers = _describe(name, index, context)
            topic.partitions.append(partition)
            for part in in_parts(producers):
                partition.active_producers += map(_described, part)
                yield
            yield


def _describe(
    name: str, index: int, context: RequestContext
) -> tuple[PartitionResponse, list[ProducerEntry]]:
    """Return a partition without its producers, and these."""
    try:
        if (problem := topic_name_problem(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        context.require(Operation.READ, ResourceType.TOPIC, name)
        producers = _replica((name, index), context).log.producers
    except KafkaError as error:
        return PartitionResponse(index, error.code, error.message), []
    return PartitionResponse(index), [*producers]


def _replica(key: PartitionKey, context: RequestContext) -> Partition:
    """Return a partition that this broker has, whoever leads it; KafkaError otherwise."""
    code = context.broker.partition_error(*key)
    partition = context.broker.partitions.get(key)
    if partition is None or code not in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        raise KafkaError(code)
    return partition


def _described(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else _NO_SEQUENCE,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
