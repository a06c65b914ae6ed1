"""How a broker's session begins on the controller's side: both prove that they know the secret.

The same for a controller that is active and for a standby; what differs is what it says of itself.
"""

import logging
import secrets
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import WSCloseCode, web

from fairlead_controller.session_messages import pack_message, receive
from fairlead_model.ids import ControllerEpoch
from fairlead_model.refusals import RefusalCode, RefusedError
from fairlead_model.session_protocol import (
    NONCE_SIZE,
    PROTOCOL_VERSION,
    MessageType,
    SessionProtocolError,
    broker_proof,
    controller_proof,
    is_proof,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a candidate says of itself to a broker that has proved who it is."""

    cluster_id: str
    controller_epoch: ControllerEpoch
    is_active: bool


STANDBY = Introduction("", 0, is_active=False)


async def authenticate(
    socket: web.WebSocketResponse, secret: bytes, introduction: Introduction
) -> None:
    """Let a broker prove itself, then do the same; RefusedError or SessionProtocolError."""
    ours = secrets.token_bytes(NONCE_SIZE)
    await socket.send_bytes(
        pack_message(MessageType.CHALLENGE, version=PROTOCOL_VERSION, nonce=ours)
    )
    message = await receive(socket, MessageType.AUTHENTICATE)
    theirs = message.get("nonce")
    if not isinstance(theirs, bytes) or len(theirs) != NONCE_SIZE:
        raise SessionProtocolError("bad nonce")
    if not is_proof(broker_proof(secret, ours, theirs), message.get("proof")):
        raise RefusedError(
            RefusalCode.CLUSTER_AUTHORIZATION_FAILED,
            "the cluster secret of this broker is not the controller's",
        )
    await socket.send_bytes(
        pack_message(
            MessageType.AUTHENTICATED,
            proof=controller_proof(secret, ours, theirs),
            cluster_id=introduction.cluster_id,
            controller_epoch=introduction.controller_epoch,
            is_active=introduction.is_active,
        )
    )


async def turn_away(socket: web.WebSocketResponse, remote: str | None, error: Exception) -> None:
    """Close a connection that has not become a session, with the reason where it has one."""
    if not isinstance(error, RefusedError):
        logger.warning("refused a session from %s: %r", remote, error)
        await socket.close(code=WSCloseCode.POLICY_VIOLATION)
        return
    logger.warning("refused a broker at %s: %s", remote, error.message)
    message = pack_message(MessageType.REFUSED, code=int(error.code), message=error.message)
    with suppress(ConnectionError):
        await socket.send_bytes(message)
    await socket.close()
