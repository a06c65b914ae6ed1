"""ElectLeaders (key 43), versions 0-2.

Behaviour: the controller elects, each partition on its own. Preferred (type 0): the first replica
of the assignment takes over if it is in service and in sync, otherwise
PREFERRED_LEADER_NOT_AVAILABLE; ELECTION_NOT_NEEDED if it leads already. Unclean (type 1): a
partition without a leader gets any replica in service, and acknowledged records may be lost;
ELECTION_NOT_NEEDED if there is a leader, ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica is in
service. INVALID_REQUEST for any other type. A replica that a reassignment adds is not made leader
before that has ended, where Kafka does it once it is in sync: PREFERRED_LEADER_NOT_AVAILABLE. A
request without partitions means all, and the reply leaves out those that need no election.
Versions:  1 election type and an error for the whole request · 2 flexible.
Missing:   quotas on controller mutations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import ask_controller, slot_error
from fairlead_model.session.calls import ElectablePartition, ElectionType, ElectLeadersCall, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.broker import Broker

_KNOWN_TYPES = frozenset(ElectionType)


def _refuse_access(
    request: ElectLeadersRequest, context: RequestContext, code: ErrorCode
) -> ElectLeadersResponse:
    return _refused(request, KafkaError(code), context.version)


@handles(
    ApiKey.ELECT_LEADERS, versions=(0, 2), access=needs_cluster(Operation.ALTER, _refuse_access)
)
def elect_leaders(
    request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse | Pending:
    """Forward to the controller."""
    count = count_named(topic.partitions for topic in request.topic_partitions or ())
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"ElectLeaders names {count} partitions")
    if request.election_type not in _KNOWN_TYPES:
        unknown = f"Unknown election type {request.election_type}"
        return _refused(request, KafkaError(ErrorCode.INVALID_REQUEST, unknown), context.version)
    return context.later(_elect(request, context.broker, context.version))


async def _elect(
    request: ElectLeadersRequest, broker: Broker, version: int
) -> ElectLeadersResponse:
    call = ElectLeadersCall(partitions=_wanted(request), election_type=request.election_type)
    try:
        reply = await ask_controller(
            broker, Method.ELECT_LEADERS, call, timeout_ms=request.timeout_ms
        )
    except KafkaError as error:
        return _refused(request, error, version)
    results: dict[str, ReplicaElectionResult] = {}
    for elected in reply["partitions"]:
        code, message = slot_error(elected)
        _result_of(results, elected["topic"]).partition_result.append(
            PartitionResult(partition_id=elected["index"], error_code=code, error_message=message)
        )
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _wanted(request: ElectLeadersRequest) -> list[ElectablePartition] | None:
    """Give the partitions that are named, None for all."""
    if request.topic_partitions is None:
        return None
    return [
        ElectablePartition(topic=topic.topic, index=index)
        for topic in request.topic_partitions
        for index in topic.partitions
    ]


def _refused(request: ElectLeadersRequest, error: KafkaError, version: int) -> ElectLeadersResponse:
    """Have every partition carry the error too: version 0 has no place for one of them all."""
    results: dict[str, ReplicaElectionResult] = {}
    for partition in _wanted(request) or ():
        _result_of(results, partition["topic"]).partition_result.append(
            PartitionResult(
                partition_id=partition["index"],
                error_code=error.code,
                error_message=error.message,
            )
        )
    return ElectLeadersResponse(
        error_code=error.code if version >= 1 else ErrorCode.NONE,
        replica_election_results=list(results.values()),
    )


def _result_of(results: dict[str, ReplicaElectionResult], topic: str) -> ReplicaElectionResult:
    return results.setdefault(topic, ReplicaElectionResult(topic=topic))
