"""LeaveGroup (key 13), versions 0-5.

Behaviour: members leave at once, and the others rebalance. A static member that goes only for a
restart sends nothing; an administrator removes one by its group instance id and an empty member id.
Versions:  3 many members · 4 flexible · 5 reason, which is not kept.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.group_types import LeavingMember
from fairlead_broker.handlers.group_requests import check_group_id
from fairlead_broker.handlers.registry import handles
from fairlead_broker.limits import GROUP_MEMBERS_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import RequestContext

_MANY_SINCE = 3


@handles(ApiKey.LEAVE_GROUP, versions=(0, 5))
def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    broker = context.broker
    if len(request.members) > GROUP_MEMBERS_MAX:
        raise RemoteProtocolError(f"LeaveGroup names {len(request.members)} members")
    many = context.version >= _MANY_SINCE
    if many:
        members = request.members
        leaving = [LeavingMember(each.member_id, each.group_instance_id) for each in members]
    else:
        leaving = [LeavingMember(request.member_id, None)]
    try:
        check_group_id(request.group_id)
        codes = _leave(broker, request.group_id, leaving)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return LeaveGroupResponse(error_code=error.code)
    if not many:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(each.member_id, each.group_instance_id, code)
            for each, code in zip(leaving, codes, strict=True)
        ]
    )


def _leave(broker: Broker, group_id: str, leaving: list[LeavingMember]) -> list[ErrorCode]:
    group = broker.group_coordinator.find(group_id)
    if group is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
    clock = broker.clock
    codes, effects = group.classic.leave(
        leaving, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
    )
    broker.group_coordinator.carry_out(group, effects)
    return codes
