"""Envelope (key 58), version 0.

Behaviour: carries a request of an HTTP client from the broker that received it to the broker with
its consumer instance, together with the client's principal. Only brokers may send it: they have
proved to each other that they know the cluster's secret. It is answered when the request is
answered. If this broker serves no HTTP API, the error is UNSUPPORTED_VERSION.
Versions:  0 only between brokers: clients cannot use it and do not see it.
Missing:   Kafka's own use, requests of Kafka clients for a KRaft controller (KIP-590): brokers ask
           the controller over their session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


@handles(
    ApiKey.ENVELOPE,
    versions=(0, -1),
    internal_versions=(0, 0),
    access=needs_cluster(Operation.CLUSTER_ACTION),
)
def envelope(request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse | Pending:
    """Have the HTTP API answer what another broker passes on."""
    forwarded = context.broker.forwarded_http
    if forwarded is None:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    context.parked = forwarded(
        request, lambda answer: context.respond(EnvelopeResponse(response_data=answer))
    )
    return PENDING
