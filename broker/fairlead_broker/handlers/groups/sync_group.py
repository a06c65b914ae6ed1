"""SyncGroup (key 14), versions 0-5.

Behaviour: a member asks for its assignment. The leader's request has those of all members; they are
committed before any member is answered. A member that asks earlier waits for the leader.
Versions:  3 static members · 4 flexible · 5 protocol type and name, which must be there
           and be the group's.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Operation, needs_group
from fairlead_broker.group.group_types import SyncRequest, SyncResult
from fairlead_broker.handlers.groups.group_requests import ParkedMember, check_group_id
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

_PROTOCOL_NAMED_SINCE = 5


@handles(ApiKey.SYNC_GROUP, versions=(0, 5), access=needs_group(Operation.READ))
@once_awake
def sync_group(request: SyncGroupRequest, context: RequestContext) -> Pending | SyncGroupResponse:
    broker = context.broker
    waiter = ParkedMember(context, request.group_id, _build_response)
    asked = SyncRequest(
        member_id=request.member_id,
        generation_id=request.generation_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in request.assignments),
    )
    try:
        check_group_id(request.group_id)
        if context.version >= _PROTOCOL_NAMED_SINCE and None in (
            request.protocol_type,
            request.protocol_name,
        ):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and name are missing"
            )
        broker.group_coordinator.sync(request.group_id, asked, waiter)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return SyncGroupResponse(error_code=error.code)
    waiter.park()
    return PENDING


def _build_response(result: SyncResult, version: int) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
