"""AlterClientQuotas (key 49), versions 0-1.

Behaviour: each entity on its own, in the order of the request; needs ALTER_CONFIGS on the cluster.
An entity is a user, a client id, both, or an address; a name that is null means the default.
INVALID_REQUEST for no or an unknown type, a type or a key twice, an empty name, an address beside
anything else, a host's name, a key that the entity does not have, a value that is not above 0 or,
for bytes and connections, no whole number; and for an entity that is named twice. Removing a quota
that does not exist succeeds. All valid changes are made at once, and the answer comes when this
broker applies them. `validate_only` runs the same checks.
Versions:  1 flexible.
Missing:   nothing. Kafka looks up the names of hosts; here they are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.security.acl_requests import asked_by
from fairlead_broker.limits import ADMIN_TIMEOUT_MS, QUOTA_ENTITIES_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import ask_controller, slot_error
from fairlead_model.codec import encode_quota_entity
from fairlead_model.security.client_quota import KEY_LENGTH_MAX, quota_entity
from fairlead_model.session.calls import (
    AlterClientQuotasCall,
    Method,
    QuotaAlteration,
    QuotaEntityAlteration,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


def _refuse(
    request: AlterClientQuotasRequest, context: RequestContext, code: ErrorCode
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[_result(entry, code, code.description) for entry in request.entries]
    )


@handles(
    ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    access=needs_cluster(Operation.ALTER_CONFIGS, _refuse),
)
def alter_client_quotas(request: AlterClientQuotasRequest, context: RequestContext) -> Pending:
    """Forward to the controller what names an entity."""
    if len(request.entries) > QUOTA_ENTITIES_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"AlterClientQuotas names {len(request.entries)} entities")
    return context.later(_alter(request, context))


async def _alter(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    outcomes: dict[int, tuple[ErrorCode, str | None]] = {}
    forwarded: dict[int, QuotaEntityAlteration] = {}
    for index, entry in enumerate(request.entries):
        try:
            forwarded[index] = _alteration(entry)
        except ValueError as error:
            outcomes[index] = ErrorCode.INVALID_REQUEST, str(error)
    if forwarded:
        call = AlterClientQuotasCall(
            entries=list(forwarded.values()),
            validate_only=request.validate_only,
            asked_by=asked_by(context),
        )
        try:
            reply = await ask_controller(
                context.broker, Method.ALTER_CLIENT_QUOTAS, call, timeout_ms=ADMIN_TIMEOUT_MS
            )
        except KafkaError as failure:
            outcomes |= dict.fromkeys(forwarded, (failure.code, failure.message))
        else:
            outcomes |= zip(forwarded, map(slot_error, reply["entries"]), strict=True)
    return AlterClientQuotasResponse(
        entries=[_result(entry, *outcomes[index]) for index, entry in enumerate(request.entries)]
    )


def _alteration(entry: RequestEntryData) -> QuotaEntityAlteration:
    """Return an entry for the controller; ValueError if it names no entity, or no key."""
    entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
    for op in entry.ops:
        if len(op.key) > KEY_LENGTH_MAX:
            raise ValueError(f"Invalid configuration key {op.key[:KEY_LENGTH_MAX]}…")
    return QuotaEntityAlteration(
        entity=encode_quota_entity(entity),
        alterations=[
            QuotaAlteration(key=op.key, value=None if op.remove else op.value) for op in entry.ops
        ],
    )


def _result(entry: RequestEntryData, code: ErrorCode, message: str | None) -> ResponseEntryData:
    return ResponseEntryData(
        code,
        message,
        [ResponseEntityData(part.entity_type, part.entity_name) for part in entry.entity],
    )
