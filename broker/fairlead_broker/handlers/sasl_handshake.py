"""SaslHandshake (key 17), version 1, on the brokers' listener only.

Behaviour: names the one mechanism by which brokers prove themselves; see `peer_check`.
Versions:  1 goes on with SaslAuthenticate.
Missing:   client mechanisms: PLAIN, SCRAM. Version 0, whose tokens come without frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.handlers.registry import handles
from fairlead_broker.peer_check import MECHANISM
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from fairlead_broker.handlers.registry import RequestContext


@handles(ApiKey.SASL_HANDSHAKE, versions=(1, 1), internal_only=True)
def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Take the mechanism that the peer wants, if it is ours."""
    check = context.channel.peer_check
    is_ours = check is not None and check.choose(request.mechanism)
    return SaslHandshakeResponse(
        error_code=ErrorCode.NONE if is_ours else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        mechanisms=[MECHANISM],
    )
