"""SaslHandshake (key 17), versions 0 and 1.

Behaviour: takes the mechanism that the client wants. A mechanism that is not enabled is answered
with the enabled ones, after a delay, and the connection is closed. On a listener without logins, or
if the client may not log in again yet (KIP-368: once a second), the answer is ILLEGAL_SASL_STATE.
The brokers' listener has only the mechanism by which brokers prove themselves; see `peer_check`.
Versions:  0 the tokens follow without requests around them · 1 goes on with SaslAuthenticate; the
           brokers' listener has this one only.
Missing:   GSSAPI, and clients of Kafka 0.9 that begin it without a handshake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access
from fairlead_broker.peer_check import MECHANISM
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


@handles(ApiKey.SASL_HANDSHAKE, versions=(0, 1), internal_versions=(1, 1), access=Access.EVERYBODY)
def sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse | Pending:
    """Take the mechanism that the peer wants, if it is one of ours."""
    channel = context.channel
    check = channel.peer_check
    if check is not None:
        is_ours = check.choose(request.mechanism)
        return SaslHandshakeResponse(
            error_code=ErrorCode.NONE if is_ours else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            mechanisms=[MECHANISM],
        )
    if channel.login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return channel.login.choose_mechanism(request.mechanism, context)
