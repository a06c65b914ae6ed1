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
from fairlead_broker.handlers.groups.group_requests import check_group_names
from fairlead_broker.handlers.in_turns import in_counted_turns, in_parts
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.group.group_types import DescribedMember

_NOT_FOUND_SINCE = 6


@handles(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), access=Access.BY_RESOURCE)
@once_awake
def describe_groups(
    request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Pending:
    # Each once: a group may have megabytes of metadata, and its name be there thousands of times.
    names = list(dict.fromkeys(request.groups))
    check_group_names(names, "DescribeGroups")
    response = DescribeGroupsResponse()
    return in_counted_turns(context, _steps(names, request, context, response), lambda: response)


def _steps(
    names: list[str],
    request: DescribeGroupsRequest,
    context: RequestContext,
    response: DescribeGroupsResponse,
) -> Iterator[int]:
    """Describe group after group; a step says how many groups and members it has told of."""
    for name in names:
        group, members = _describe(name, context)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.authorized_operations(ResourceType.GROUP, name)
        response.groups.append(group)
        for part in in_parts(members):
            group.members += map(_member, part)
            yield len(part)
        yield 1


def _describe(
    group_id: str, context: RequestContext
) -> tuple[DescribedGroup, Sequence[DescribedMember]]:
    """Return a group without its members, and these."""
    broker = context.broker
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.group_coordinator.find(group_id)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        refused = DescribedGroup(
            error_code=error.code, error_message=_text(error.message, context), group_id=group_id
        )
        return refused, ()
    described = None if group is None else group.protocol.describe()
    if described is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if context.version >= _NOT_FOUND_SINCE:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = f"Group {group_id} not found."
        return missing, ()
    shown = DescribedGroup(
        group_id=group_id,
        group_state=described.state_name,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol_name,
    )
    return shown, described.members


def _member(member: DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )


def _text(message: str, context: RequestContext) -> str | None:
    return message if context.version >= _NOT_FOUND_SINCE else None
