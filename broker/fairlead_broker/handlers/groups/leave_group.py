"""LeaveGroup (key 13), versions 0-5.

Behaviour: members leave at once, and the others rebalance. A static member that only restarts sends
nothing; an administrator removes a static member by its group instance id and an empty member id.
In a group of KIP-848 members of either protocol can be removed; the answer comes when that is
committed.
Versions:  3 many members · 4 flexible · 5 reason, which is not kept.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Operation, needs_group
from fairlead_broker.group.group_memory import check_parked
from fairlead_broker.group.group_types import LeaveResult, LeavingMember
from fairlead_broker.handlers.groups.group_requests import ParkedMember, check_group_id
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.limits import GROUP_MEMBERS_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

_MANY_SINCE = 3


@handles(ApiKey.LEAVE_GROUP, versions=(0, 5), access=needs_group(Operation.READ))
@once_awake
def leave_group(
    request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Pending:
    broker = context.broker
    if len(request.members) > GROUP_MEMBERS_MAX:
        raise RemoteProtocolError(f"LeaveGroup names {len(request.members)} members")
    many = context.version >= _MANY_SINCE
    if many:
        members = request.members
        leaving = [LeavingMember(each.member_id, each.group_instance_id) for each in members]
    else:
        leaving = [LeavingMember(request.member_id, None)]

    def build(result: LeaveResult, version: int) -> LeaveGroupResponse:
        if result.error is not ErrorCode.NONE:
            return LeaveGroupResponse(error_code=result.error)
        if not many:
            return LeaveGroupResponse(error_code=result.codes[0])
        return LeaveGroupResponse(
            members=[
                MemberResponse(each.member_id, each.group_instance_id, code)
                for each, code in zip(leaving, result.codes, strict=True)
            ]
        )

    try:
        check_group_id(request.group_id)
        coordinator = broker.group_coordinator
        group = coordinator.find(request.group_id)
        if group is None:
            codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
            return build(LeaveResult(codes=codes), context.version)
        check_parked(coordinator.parked_count)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return LeaveGroupResponse(error_code=error.code)
    waiter = ParkedMember(context, request.group_id, build)
    coordinator.leave(group, leaving, waiter)
    waiter.park()
    return PENDING
