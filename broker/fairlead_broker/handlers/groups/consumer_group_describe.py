"""ConsumerGroupDescribe (key 69), versions 0-1.

Behaviour: state, epochs and members of groups of KIP-848 that this broker coordinates, with the
current and the target assignment of each, as committed. A group of the classic protocol is
GROUP_ID_NOT_FOUND, as is a group that does not exist. If the client may not describe a topic in it,
the group is refused; deleted topics are left out.
Versions:  1 which protocol each member uses.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.groups.group_requests import (
    check_group_names,
    require_consumer_protocol,
)
from fairlead_broker.handlers.in_turns import in_counted_turns, in_parts
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.group.assignors.assignment import TopicIdPartition
    from fairlead_broker.group.group_types import (
        ConsumerGroupDescription,
        ConsumerMemberDescription,
    )
    from fairlead_model.ids import TopicId

_CLASSIC = 0
_CONSUMER = 1


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), access=Access.BY_RESOURCE)
@once_awake
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Pending:
    names = list(dict.fromkeys(request.group_ids))
    check_group_names(names, "ConsumerGroupDescribe")
    response = ConsumerGroupDescribeResponse()
    return in_counted_turns(context, _steps(names, request, context, response), lambda: response)


def _steps(
    names: list[str],
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
    response: ConsumerGroupDescribeResponse,
) -> Iterator[int]:
    """Describe group after group; a step says how many groups and members it has told of."""
    metrics = context.broker.metrics
    for name in names:
        try:
            described = _find(name, context)
            group = _shown(name, described)
            for part in in_parts(described.members):
                group.members += [_member(each, context) for each in part]
                yield len(part)
        except KafkaError as error:
            # Also where a topic of one of its members may not be described.
            metrics.errors[error.code.name] += 1
            group = DescribedGroup(
                error_code=error.code, error_message=error.message or None, group_id=name
            )
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.authorized_operations(ResourceType.GROUP, name)
        response.groups.append(group)
        yield 1


def _find(group_id: str, context: RequestContext) -> ConsumerGroupDescription:
    """Return what is told of a group; KafkaError where nothing is."""
    broker = context.broker
    context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
    require_consumer_protocol(broker)
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    group = broker.group_coordinator.find(group_id)
    described = None if group is None else group.protocol.describe_members()
    if described is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return described


def _shown(group_id: str, described: ConsumerGroupDescription) -> DescribedGroup:
    """Return a group without its members."""
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state_name,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor_name,
    )


def _member(described: ConsumerMemberDescription, context: RequestContext) -> Member:
    metadata, current = described.metadata, described.current
    return Member(
        member_id=described.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_regex,
        # It still reads the partitions that it has yet to give up.
        assignment=_assignment({**current.assigned, **current.pending_revocation}, context),
        target_assignment=_assignment(described.target, context),
        member_type=_CONSUMER if metadata.classic is None else _CLASSIC,
    )


def _assignment(partitions: Iterable[TopicIdPartition], context: RequestContext) -> Assignment:
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    shown = []
    for topic_id, indexes in by_topic.items():
        name = context.broker.topic_name(topic_id)
        if name is not None:
            context.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
            shown.append(TopicPartitions(topic_id, name, indexes))
    return Assignment(shown)
