"""FindCoordinator (key 10), versions 0-6.

Behaviour: the coordinator of a group (key type 0) is the leader of its partition of
`__consumer_offsets`, that of a transactional id (1) the leader of its partition of
`__transaction_state`. The first request has the topic made; until it is there, and while its
partition has no leader, the answer is COORDINATOR_NOT_AVAILABLE, which clients retry.
Versions:  1 key type and error message · 3 flexible · 4 many keys at once · 5
           TRANSACTION_ABORTABLE exists (never sent) · 6 share groups (key type 2), which are not
           built: INVALID_REQUEST.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import DENIALS, Access, Operation, ResourceType
from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_broker.limits import COORDINATOR_KEYS_LENGTH_MAX, COORDINATOR_KEYS_MAX
from fairlead_model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

GROUP = 0
TRANSACTION = 1
_KINDS = {
    GROUP: (ResourceType.GROUP, CONSUMER_OFFSETS),
    TRANSACTION: (ResourceType.TRANSACTIONAL_ID, TRANSACTION_STATE),
}
"""By key type, what a key names, and the topic that keeps it."""
FIRST_VERSION_WITH_MANY_KEYS = 4


@handles(ApiKey.FIND_COORDINATOR, versions=(0, 6), access=Access.BY_RESOURCE)
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Answer from the image; making the internal topic goes on in the background."""
    many = context.version >= FIRST_VERSION_WITH_MANY_KEYS
    keys = request.coordinator_keys if many else [request.key]
    if len(keys) > COORDINATOR_KEYS_MAX:
        raise RemoteProtocolError(f"FindCoordinator names {len(keys)} keys")
    length = sum(map(len, keys))
    if length > COORDINATOR_KEYS_LENGTH_MAX:
        raise RemoteProtocolError(f"FindCoordinator names keys of {length} characters")
    found = [_find(key, request.key_type, context) for key in dict.fromkeys(keys)]
    if many:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    broker, listener = context.broker, context.listener
    kind = _KINDS.get(key_type)
    if kind is None:
        return _nobody(key, ErrorCode.INVALID_REQUEST, f"there is no key type {key_type}")
    resource_type, name = kind
    if not context.may(Operation.DESCRIBE, resource_type, key):
        code = DENIALS[resource_type]
        return _nobody(key, code, code.description)
    topic = broker.image.topic(name)
    if topic is None or not topic.partitions:
        broker.topic_creator.begin(name)
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is being created")
    index = coordinator_partition(key, len(topic.partitions))
    leader = topic.partitions[index].leader
    registration = broker.image.brokers.get(leader)
    endpoint = None if registration is None else registration.endpoint(listener.name)
    if registration is None or registration.fenced or endpoint is None:
        return _nobody(
            key,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{name}-{index} has no leader at the moment",
        )
    return Coordinator(
        key=key, node_id=leader, host=endpoint.host, port=endpoint.port, error_message=None
    )


def _nobody(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
    )
