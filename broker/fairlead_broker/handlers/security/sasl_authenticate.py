"""SaslAuthenticate (key 36), versions 0-2.

Behaviour: one round of a login by SCRAM-SHA-256, SCRAM-SHA-512, PLAIN or OAUTHBEARER; see
`fairlead_broker/security/sasl`. Any failure is answered with SASL_AUTHENTICATION_FAILED and the
same message, after `connection.failed.authentication.delay.ms`, and the connection is closed.
Without a login under way the answer is ILLEGAL_SASL_STATE. On the brokers' listener two rounds
prove that both sides know the cluster's secret; see `peer_check`.
Versions:  1 session lifetime, after which the login has to be repeated (KIP-368) · 2 flexible.
Missing:   GSSAPI, delegation tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access
from fairlead_broker.peer_check import PeerProofError
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.peer_check import PeerCheck


@handles(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), access=Access.EVERYBODY)
def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Pending:
    """Do one round of the exchange."""
    channel = context.channel
    token = bytes(request.auth_bytes)
    if channel.peer_check is not None:
        return _prove(channel.peer_check, token, context)
    if channel.login is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="Nobody logs in on this listener.",
        )
    return channel.login.authenticate(token, context)


def _prove(check: PeerCheck, token: bytes, context: RequestContext) -> SaslAuthenticateResponse:
    try:
        answer = check.receive(token)
    except PeerProofError as error:
        context.close_connection(str(error))
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="authentication failed",
        )
    if check.is_passed:
        context.channel.on_proved()
    return SaslAuthenticateResponse(auth_bytes=answer)
