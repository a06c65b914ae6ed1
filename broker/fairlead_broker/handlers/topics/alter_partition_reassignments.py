"""AlterPartitionReassignments (key 45), versions 0-1.

Behaviour: the controller checks each partition on its own. A target that needs copies waits until
the brokers have room for them; replicas that are listed as being added or removed tell how far it
is. The answer comes when the request is durable, not when data has moved. Replicas null cancel:
NO_REASSIGNMENT_IN_PROGRESS where nothing moves or waits, INVALID_REPLICA_ASSIGNMENT where the
original replicas do not hold what was acknowledged since. INVALID_REPLICA_ASSIGNMENT also for
brokers that are unknown, down or being drained, that are named twice, or two on one machine
while another is free. The number of replicas of a topic that a resource declares cannot change
here: POLICY_VIOLATION. A repeated request changes nothing and succeeds.
Versions:  1 allow_replication_factor_change (KIP-860).
Missing:   quotas on controller mutations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import ask_in_parts, repeated, slot_error
from fairlead_model.session.calls import AlterReassignmentsCall, Method, ReassignablePartition
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.broker import Broker


def _refuse_access(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    return _answer(request, error_code=code)


@handles(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    access=needs_cluster(Operation.ALTER, _refuse_access),
)
def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> Pending:
    """Forward to the controller."""
    count = count_named(topic.partitions for topic in request.topics)
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"AlterPartitionReassignments names {count} partitions")
    return context.later(_alter(request, context.broker))


async def _alter(
    request: AlterPartitionReassignmentsRequest, broker: Broker
) -> AlterPartitionReassignmentsResponse:
    wanted = [
        ReassignablePartition(
            topic=topic.name, index=partition.partition_index, replicas=partition.replicas
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    # Parts of a request are decided one by one: a partition must not be in two of them.
    if repeated((each["topic"], each["index"]) for each in wanted):
        return _answer(
            request,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="a partition is named more than once in the request",
        )
    call = AlterReassignmentsCall(
        partitions=wanted,
        allow_replication_factor_change=request.allow_replication_factor_change,
    )
    reply = await ask_in_parts(
        broker,
        Method.ALTER_PARTITION_REASSIGNMENTS,
        call,
        "partitions",
        timeout_ms=request.timeout_ms,
    )
    if reply.error is not None and not reply.answers:
        return _answer(request, error_code=reply.error.code, error_message=reply.error.message)
    topics: dict[str, ReassignableTopicResponse] = {}
    for altered in reply.answers:
        code, message = slot_error(altered)
        _note(topics, altered["topic"], altered["index"], code, message)
    if reply.error is not None:
        for unanswered in reply.unanswered:
            _note(
                topics,
                unanswered["topic"],
                unanswered["index"],
                reply.error.code,
                reply.error.message,
            )
    return _answer(request, topics=list(topics.values()))


def _note(
    topics: dict[str, ReassignableTopicResponse],
    topic: str,
    index: int,
    code: ErrorCode,
    message: str | None,
) -> None:
    topics.setdefault(topic, ReassignableTopicResponse(name=topic)).partitions.append(
        ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
    )


def _answer(
    request: AlterPartitionReassignmentsRequest,
    *,
    error_code: ErrorCode = ErrorCode.NONE,
    error_message: str | None = None,
    topics: list[ReassignableTopicResponse] | None = None,
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error_code,
        error_message=error_message,
        responses=topics or [],
    )
