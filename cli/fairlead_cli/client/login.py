"""Log a connection in with the client's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.client.access import login_settings
from fairlead_cli.wire_exchange import exchange, name_error
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest
from fairlead_wire.sasl_login import LoginRefusedError, log_in

if TYPE_CHECKING:
    import socket


def log_in_as_configured(connection: socket.socket) -> None:
    """Log in if the client's settings have credentials. LoginRefusedError, and as `exchange`."""
    login = login_settings()
    if login is None:
        return
    handshake = exchange(connection, SaslHandshakeRequest(login.mechanism), 1)
    if handshake.error_code:
        enabled = ", ".join(handshake.mechanisms)
        raise LoginRefusedError(f"it takes {enabled}, not {login.mechanism}")

    def send(token: bytes) -> bytes:
        reply = exchange(connection, SaslAuthenticateRequest(token), 2)
        if reply.error_code:
            raise LoginRefusedError(reply.error_message or name_error(reply.error_code))
        return bytes(reply.auth_bytes)

    log_in(login.mechanism, login.user, login.password, send)
