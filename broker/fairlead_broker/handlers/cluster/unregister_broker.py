"""UnregisterBroker (key 64), version 0.

Behaviour: the controller forgets a broker that is gone for good (`kafka-cluster.sh unregister`):
its registration, its dynamic configs, its order to drain, and its feature levels, which no longer
limit upgrades. The broker has to be out of service and without a session, and no partition may name
it as a replica; otherwise the answer is POLICY_VIOLATION with a sentence that says what to do. An
unknown id answers BROKER_ID_NOT_REGISTERED, even if it was unregistered a moment ago. A broker that
comes back registers again, with a new epoch and without its dynamic configs.
Versions:  there is only this one.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.limits import ADMIN_TIMEOUT_MS
from fairlead_broker.session.controller_calls import ask_controller
from fairlead_model.session.calls import Method, UnregisterBrokerCall
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


def _refuse_access(
    request: UnregisterBrokerRequest, context: RequestContext, code: ErrorCode
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=code, error_message=None)


@handles(
    ApiKey.UNREGISTER_BROKER,
    versions=(0, 0),
    access=needs_cluster(Operation.ALTER, _refuse_access),
)
def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> Pending:
    """Forward to the controller."""
    return context.later(_unregister(request, context))


async def _unregister(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    call = UnregisterBrokerCall(broker_id=request.broker_id)
    try:
        # The request has no time-out.
        await ask_controller(
            context.broker, Method.UNREGISTER_BROKER, call, timeout_ms=ADMIN_TIMEOUT_MS
        )
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message or None)
    return UnregisterBrokerResponse(error_message=None)
