"""ConsumerGroupHeartbeat (key 68), versions 0-1.

Behaviour: a member of a group of KIP-848 joins (epoch 0), sends a heartbeat with its partitions, or
leaves (-1; -2: a static member for a moment). The answer has its epoch, and its assignment if that
has changed; it comes when all records that it depends on are committed. A group without members
changes from the classic protocol; a group with members changes if `group.consumer.migration.policy`
allows it. A broker that has the member of an HTTP client sends that client's user in its own tags:
a regular expression finds topics that this user may describe.
Versions:  1 regular expressions (RE2); the member makes its own id.
Missing:   nothing.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Operation, Principal, ResourceType, needs_group
from fairlead_broker.group.assignors.assignment import TopicIdPartition
from fairlead_broker.group.group_types import ConsumerHeartbeat, ConsumerHeartbeatResult
from fairlead_broker.handlers.groups.group_requests import ParkedMember, require_consumer_protocol
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.limits import (
    MEMBER_METADATA_BYTES_MAX,
    MEMBER_PARTITIONS_MAX,
    MEMBER_TOPICS_MAX,
)
from fairlead_model.ids import TopicId
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.api_registry import RequestContext

_OWN_MEMBER_ID_SINCE = 1
_JOINING = 0
_LEAVING = -1
_AWAY = -2
_UNCHANGED = -1


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), access=needs_group(Operation.READ))
@once_awake
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Pending | ConsumerGroupHeartbeatResponse:
    broker = context.broker
    waiter = ParkedMember(context, request.group_id, _build_response)
    try:
        require_consumer_protocol(broker)
        names = request.subscribed_topic_names or ()
        # More are refused below, whoever may know of them: to ask for each would take long.
        for name in names if len(names) <= MEMBER_TOPICS_MAX else ():
            context.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        _check(request, context.version)
        coordinator = broker.group_coordinator
        coordinator.consumer_heartbeat(request.group_id, _read(request, context), waiter)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=error.message or None
        )
    waiter.park()
    return PENDING


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise KafkaError INVALID_REQUEST for what makes no sense, whatever the group is."""
    epoch = request.member_epoch
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    owned_count = sum(len(each.partitions) for each in request.topic_partitions or ())
    problem = ""
    if not request.group_id:
        problem = "GroupId can't be empty."
    elif not request.member_id and (version >= _OWN_MEMBER_ID_SINCE or epoch != _JOINING):
        problem = "MemberId can't be empty."
    elif epoch < _AWAY:
        problem = f"there is no member epoch {epoch}"
    elif "" in (request.instance_id, request.rack_id):
        problem = "an instance id or a rack id is empty"
    elif epoch == _AWAY and request.instance_id is None:
        problem = "only a static member may leave for a moment"
    elif epoch == _JOINING and request.rebalance_timeout_ms == _UNCHANGED:
        problem = "who joins must say its rebalance time-out"
    elif epoch == _JOINING and (request.topic_partitions is None or request.topic_partitions):
        problem = "who joins must say that it has no partitions"
    elif epoch == _JOINING and names is None and pattern is None:
        problem = "who joins must say what it subscribes to"
    elif len(names or ()) > MEMBER_TOPICS_MAX:
        problem = f"a subscription to more than {MEMBER_TOPICS_MAX} topics"
    elif sum(map(len, names or ())) + len(pattern or "") > MEMBER_METADATA_BYTES_MAX:
        problem = f"a subscription of more than {MEMBER_METADATA_BYTES_MAX} bytes"
    elif owned_count > MEMBER_PARTITIONS_MAX:
        problem = f"a member with more than {MEMBER_PARTITIONS_MAX} partitions"
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _read(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        member_id=request.member_id or _new_member_id(),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(sorted(set(names))),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset(
            TopicIdPartition(TopicId(each.topic_id), partition)
            for each in owned
            for partition in each.partitions
        ),
        may_describe=_describer(request, context),
    )


def _describer(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Callable[[str], bool]:
    """Return what tells whether the member may know of a topic; brokers say whose theirs are."""
    authorizer = context.broker.authorizer
    if authorizer is None or not (context.listener.is_internal and request.asked_by):
        return lambda name: context.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, name)
    kind, _, user = request.asked_by.partition(":")
    return lambda name: authorizer.would_allow(
        Principal(kind, user), request.asked_from, Operation.DESCRIBE, ResourceType.TOPIC, name
    )


def _new_member_id() -> str:
    """Return an id as clients make theirs (KIP-1082)."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _build_response(
    result: ConsumerHeartbeatResult, version: int
) -> ConsumerGroupHeartbeatResponse:
    if result.error is not ErrorCode.NONE:
        return ConsumerGroupHeartbeatResponse(error_code=result.error)
    assignment = None
    if result.assigned is not None:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(result.assigned):
            by_topic.setdefault(topic_id, []).append(partition)
        assignment = Assignment(
            [ResponseTopicPartitions(topic_id, each) for topic_id, each in by_topic.items()]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
