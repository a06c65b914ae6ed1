"""The start of a broker's session: broker and controller both prove that they know the secret.

An active controller and a standby do this in the same way; only their introductions differ.
"""

import logging
import secrets
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import WSCloseCode, web

from fairlead_controller.sessions.door import on_proved
from fairlead_controller.sessions.messages import receive
from fairlead_controller.sessions.rare_log import RareLog
from fairlead_model.host_address import peer_address
from fairlead_model.ids import ControllerEpoch
from fairlead_model.session.refusals import RefusalCode, RefusedError
from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import (
    NONCE_SIZE,
    VERSIONS,
    Greeting,
    MessageType,
    NoCommonVersionError,
    SessionProtocolError,
    broker_proof,
    common_version,
    controller_proof,
    is_proof,
    read_versions,
)

_log = RareLog(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a candidate tells a broker that has authenticated."""

    cluster_id: str
    controller_epoch: ControllerEpoch
    is_active: bool


STANDBY = Introduction("", 0, is_active=False)


async def authenticate(
    socket: web.WebSocketResponse,
    request: web.BaseRequest,
    secret: bytes,
    introduction: Introduction,
) -> None:
    """Authenticate a broker, then prove that this controller knows the secret, too.

    RefusedError or SessionProtocolError if that fails.
    """
    ours = secrets.token_bytes(NONCE_SIZE)
    await socket.send_bytes(pack_message(MessageType.CHALLENGE, versions=VERSIONS, nonce=ours))
    message = await receive(socket, MessageType.AUTHENTICATE)
    theirs = message.get("nonce")
    if not isinstance(theirs, bytes) or len(theirs) != NONCE_SIZE:
        raise SessionProtocolError("bad nonce")
    greeting = Greeting(ours, theirs, VERSIONS, read_versions(message.get("versions")))
    if not is_proof(broker_proof(secret, greeting), message.get("proof")):
        raise RefusedError(
            RefusalCode.CLUSTER_AUTHORIZATION_FAILED,
            "the cluster secret of this broker is not the controller's",
        )
    try:
        common_version(VERSIONS, greeting.broker_versions)
    except NoCommonVersionError as error:
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, str(error)) from None
    on_proved(request)
    await socket.send_bytes(
        pack_message(
            MessageType.AUTHENTICATED,
            proof=controller_proof(secret, greeting),
            cluster_id=introduction.cluster_id,
            controller_epoch=introduction.controller_epoch,
            is_active=introduction.is_active,
        )
    )


async def turn_away(socket: web.WebSocketResponse, remote: str | None, error: Exception) -> None:
    """Close a connection that has not become a session; send the reason if there is one."""
    peer = peer_address(remote or "an unknown address")
    if not isinstance(error, RefusedError):
        _log.note("sessions refused", "refused a session from %s: %r", peer, error)
        await socket.close(code=WSCloseCode.POLICY_VIOLATION)
        return
    _log.note("brokers refused", "refused a broker at %s: %s", peer, error.message)
    message = pack_message(MessageType.REFUSED, code=int(error.code), message=error.message)
    with suppress(ConnectionError):
        await socket.send_bytes(message)
    await socket.close()
