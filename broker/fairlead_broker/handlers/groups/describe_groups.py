"""DescribeGroups (key 15), versions 0-6.

Behaviour: state, protocol and members of groups that this broker coordinates. Subscriptions
are those of a stable group, assignments the last ones. A group that does not exist is Dead, and so
is one of KIP-848: ConsumerGroupDescribe is for that.
Versions:  3 authorized operations · 4 static members · 5 flexible
           · 6 a group that does not exist is GROUP_ID_NOT_FOUND, with a message.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.group.group_types import GroupState
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.limits import GROUPS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

_NOT_FOUND_SINCE = 6


@handles(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), access=Access.BY_RESOURCE)
@once_awake
def describe_groups(
    request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    # Each once: a group may have megabytes of metadata, and its name be there thousands of times.
    names = list(dict.fromkeys(request.groups))
    if len(names) > GROUPS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DescribeGroups names {len(names)} groups")
    groups = [_describe(each, context) for each in names]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = context.authorized_operations(
                    ResourceType.GROUP, group.group_id
                )
    return DescribeGroupsResponse(groups=groups)


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    broker = context.broker
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.group_coordinator.find(group_id)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return DescribedGroup(
            error_code=error.code, error_message=_text(error.message, context), group_id=group_id
        )
    described = None if group is None else group.protocol.describe()
    if described is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if context.version >= _NOT_FOUND_SINCE:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = f"there is no classic group {group_id}"
        return missing
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state_name,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in described.members
        ],
    )


def _text(message: str, context: RequestContext) -> str | None:
    return message if context.version >= _NOT_FOUND_SINCE else None
