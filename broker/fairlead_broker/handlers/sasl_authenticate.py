"""SaslAuthenticate (key 36), versions 0-2, on the brokers' listener only.

Behaviour: two rounds in which both sides prove that they know the cluster's secret; see
`peer_check`. A wrong proof is answered with SASL_AUTHENTICATION_FAILED, always in the same words,
and the connection is closed.
Versions:  1 session lifetime, which is 0: it doesn't end · 2 flexible.
Missing:   client mechanisms: PLAIN, SCRAM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.handlers.registry import handles
from fairlead_broker.peer_check import PeerProofError
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.handlers.registry import RequestContext


@handles(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), internal_only=True)
def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """One round of the exchange."""
    check = context.channel.peer_check
    try:
        if check is None:
            raise PeerProofError("no proof is expected here")
        answer = check.receive(bytes(request.auth_bytes))
    except PeerProofError as error:
        context.close_connection(str(error))
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="authentication failed",
        )
    return SaslAuthenticateResponse(auth_bytes=answer)
