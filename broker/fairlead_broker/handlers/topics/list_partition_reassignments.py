"""ListPartitionReassignments (key 46), version 0.

Behaviour: the controller lists the reassignments. A waiting reassignment is listed as it will be
once it begins. Partitions that are unknown or do not move are left out, without an error. A null
list of topics means all. A time-out of 0, which some clients send, means no time-out.
Versions:  0 is the only one.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import ADMIN_TIMEOUT_MS, PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import ask_controller
from fairlead_model.session.calls import ElectablePartition, ListReassignmentsCall, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.broker import Broker


def _refuse_access(
    request: ListPartitionReassignmentsRequest, context: RequestContext, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=code)


@handles(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    access=needs_cluster(Operation.DESCRIBE, _refuse_access),
)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> Pending:
    """Forward to the controller."""
    count = count_named(topic.partition_indexes for topic in request.topics or ())
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"ListPartitionReassignments names {count} partitions")
    return context.later(_list(request, context.broker))


async def _list(
    request: ListPartitionReassignmentsRequest, broker: Broker
) -> ListPartitionReassignmentsResponse:
    wanted: list[ElectablePartition] | None = None
    if request.topics is not None:
        wanted = [
            ElectablePartition(topic=topic.name, index=index)
            for topic in request.topics
            for index in topic.partition_indexes
        ]
    call = ListReassignmentsCall(partitions=wanted)
    try:
        reply = await ask_controller(
            broker,
            Method.LIST_PARTITION_REASSIGNMENTS,
            call,
            timeout_ms=request.timeout_ms if request.timeout_ms > 0 else ADMIN_TIMEOUT_MS,
        )
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message
        )
    topics: dict[str, OngoingTopicReassignment] = {}
    for ongoing in reply["partitions"]:
        name = ongoing["topic"]
        topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=ongoing["index"],
                replicas=ongoing["replicas"],
                adding_replicas=ongoing["adding"],
                removing_replicas=ongoing["removing"],
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
