"""Heartbeat (key 12), versions 0-4.

Behaviour: a member's sign of life. REBALANCE_IN_PROGRESS tells it to join again. While the group is
being loaded the answer is no error: sessions begin when loading ends.
Versions:  3 static members · 4 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_group
from fairlead_broker.handlers.groups.group_requests import check_group_id
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


@handles(ApiKey.HEARTBEAT, versions=(0, 4), access=needs_group(Operation.READ))
@once_awake
def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    broker = context.broker
    try:
        check_group_id(request.group_id)
        group = broker.group_coordinator.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()
        broker.metrics.errors[error.code.name] += 1
        return HeartbeatResponse(error_code=error.code)
    code = group.protocol.heartbeat(
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        now_ms=broker.group_coordinator.clock.monotonic_ms(),
    )
    if code is not ErrorCode.NONE:
        # A member that is told to join again has a deadline for it from now on.
        broker.group_coordinator.runtime.schedule(group)
        broker.metrics.errors[code.name] += 1
    return HeartbeatResponse(error_code=code)
