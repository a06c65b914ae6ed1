"""JoinGroup (key 11), versions 0-9.

Behaviour: a member joins its group or sends its protocols again; the answer comes when all members
have done so, or when the rebalance time-out of the slowest is over. The first rebalance of an empty
group waits `group.initial.rebalance.delay.ms` for more members. A session time-out outside of
`group.min.session.timeout.ms` to `group.max.session.timeout.ms` is INVALID_SESSION_TIMEOUT.
Versions:  1 rebalance time-out · 4 a new member first gets its id (MEMBER_ID_REQUIRED) · 5 static
           members · 6 flexible · 7 protocol type in the reply · 9 skip assignment.
Missing:   nothing.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Operation, needs_group
from fairlead_broker.group.group_types import JoinRequest, JoinResult
from fairlead_broker.handlers.groups.group_requests import ParkedMember, check_group_id
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.limits import (
    MEMBER_ID_PREFIX_MAX,
    MEMBER_METADATA_BYTES_MAX,
    MEMBER_PROTOCOLS_MAX,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

_KNOWN_MEMBER_ID_SINCE = 4
_PROTOCOL_TYPE_SINCE = 7
_SKIP_ASSIGNMENT_SINCE = 9


def _refuse(
    request: JoinGroupRequest, context: RequestContext, code: ErrorCode
) -> JoinGroupResponse:
    return _build_response(JoinResult(error=code, member_id=request.member_id), context.version)


@handles(ApiKey.JOIN_GROUP, versions=(0, 9), access=needs_group(Operation.READ, _refuse))
@once_awake
def join_group(request: JoinGroupRequest, context: RequestContext) -> Pending | JoinGroupResponse:
    broker = context.broker
    waiter = ParkedMember(context, request.group_id, _build_response)
    try:
        check_group_id(request.group_id)
        settings = broker.settings
        lowest = settings.group_min_session_timeout_ms
        highest = settings.group_max_session_timeout_ms
        if not lowest <= request.session_timeout_ms <= highest:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"{request.session_timeout_ms} ms is not within {lowest} to {highest}",
            )
        broker.group_coordinator.join(request.group_id, _read(request, context), waiter)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return _refuse(request, context, error.code)
    waiter.park()
    return PENDING


def _read(request: JoinGroupRequest, context: RequestContext) -> JoinRequest:
    client_id = context.client_id or ""
    if len(request.protocols) > MEMBER_PROTOCOLS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(request.protocols)} protocols of a member; {MEMBER_PROTOCOLS_MAX} are the most",
        )
    size = sum(len(each.name) + len(each.metadata) for each in request.protocols)
    if size > MEMBER_METADATA_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{size} bytes of member metadata; {MEMBER_METADATA_BYTES_MAX} are the most",
        )
    timeout_ms = request.rebalance_timeout_ms
    prefix = request.group_instance_id or client_id
    return JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{context.client_host}",
        protocol_type=request.protocol_type,
        # Copies: a view would keep the whole request in memory as long as the member lives.
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
        new_member_id=f"{prefix[:MEMBER_ID_PREFIX_MAX]}-{uuid.uuid4()}",
        requires_known_member_id=context.version >= _KNOWN_MEMBER_ID_SINCE,
        supports_skipping_assignment=context.version >= _SKIP_ASSIGNMENT_SINCE,
    )


def _build_response(result: JoinResult, version: int) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name="" if name is None and version < _PROTOCOL_TYPE_SINCE else name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata)
            for member in result.members
        ],
    )
