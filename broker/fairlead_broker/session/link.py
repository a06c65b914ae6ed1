"""One connection to one controller candidate: handshake, registration, reading.

The link knows the order of messages; what they do to the broker is `ControllerSession`'s business.
"""

import asyncio
import secrets
import socket as sockets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol

import aiohttp

from fairlead_broker.limits import (
    LINK_KEEPALIVE_IDLE_S,
    LINK_KEEPALIVE_INTERVAL_S,
    LINK_KEEPALIVE_PROBES,
)
from fairlead_model.session.session_messages import pack_message, unpack_message
from fairlead_model.session.session_protocol import (
    HANDSHAKE_TIMEOUT_S,
    MESSAGE_SIZE_MAX,
    NONCE_SIZE,
    OPTIONAL_MARK,
    SESSION_PATH,
    STANDBY_TIMEOUT_MS,
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
from fairlead_tls.session_client import check_controller, tls_options

if TYPE_CHECKING:
    from fairlead_tls.followed_certificate import FollowedPeer

CONNECT_TIMEOUT_S: Final = 2.0
"""For the name, the connection and the upgrade: a candidate may have moved to another address."""


class SessionRefusedError(Exception):
    """The controller will not have this broker; the text is its reason."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Welcome:
    """What the controller sent of itself after it had proved its identity."""

    def __init__(self, message: dict[str, Any]) -> None:
        try:
            self.cluster_id = str(message["cluster_id"])
            self.controller_epoch = int(message["controller_epoch"])
            self.is_active = bool(message["is_active"])
        except (KeyError, TypeError, ValueError) as error:
            raise SessionProtocolError("bad welcome from the controller") from error


class LinkOwner(Protocol):
    """What a link needs of its session."""

    secret: bytes
    certificate: "FollowedPeer | None"
    """The certificate for the controller; None: without TLS."""

    def registration_message(self, controller_epoch: int) -> bytes:
        """Return the `register` message for a controller, and the position of the broker."""
        ...

    def on_registered(self, link: "Link", message: dict[str, Any]) -> None:
        """Take this link into use."""
        ...

    def on_message(self, link: "Link", message: dict[str, Any]) -> None:
        """Act on any message after the registration."""
        ...


class Link:
    """A connection from its opening to its end; `run` returns or raises when it is over."""

    def __init__(self, owner: LinkOwner, url: str) -> None:
        self.url = url
        self.was_standby = False
        """Whether the candidate kept this link while another one was active."""
        self.was_refused = False
        """Whether no process listened at the candidate's port."""
        self.version = 0
        """Version of the session, once both sides have proved who they are."""
        self._owner = owner
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._sends: set[asyncio.Task[None]] = set()

    async def run(self, http: aiohttp.ClientSession) -> None:
        """Connect, register, and hand over messages until the connection ends."""
        address = self.url.rstrip("/") + SESSION_PATH
        timeout = aiohttp.ClientWSTimeout(ws_close=1.0)
        certificate = self._owner.certificate
        own = None if certificate is None else certificate.current
        async with AsyncExitStack() as stack:
            connecting = http.ws_connect(
                address,
                max_msg_size=MESSAGE_SIZE_MAX,
                compress=0,
                timeout=timeout,
                **tls_options(own),
            )
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                socket = await stack.enter_async_context(connecting)
            if own is not None:
                check_controller(socket.get_extra_info("ssl_object"), own)
            self._socket = socket
            _notice_death(socket)
            try:
                async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                    welcome = await self._authenticate(socket)
                epoch = welcome.controller_epoch
                if not welcome.is_active:
                    epoch = await self._wait_active(socket)
                await socket.send_bytes(self._owner.registration_message(epoch))
                self._owner.on_registered(self, await self._expect(socket, MessageType.REGISTERED))
                while (message := await self._next(socket)) is not None:
                    self._owner.on_message(self, message)
            finally:
                self._socket = None

    async def _wait_active(self, socket: aiohttp.ClientWebSocketResponse) -> int:
        """Keep the link of a standby until it says that it has taken over; give its epoch."""
        self.was_standby = True
        while True:
            async with asyncio.timeout(STANDBY_TIMEOUT_MS / 1000):
                message = await self._next(socket)
            if message is None:
                raise SessionProtocolError("the standby closed the connection")
            if message["type"] == MessageType.STANDBY or message["type"].startswith(OPTIONAL_MARK):
                continue
            epoch = message.get("controller_epoch")
            if message["type"] != MessageType.ACTIVE or not isinstance(epoch, int):
                raise SessionProtocolError(f"a standby sent {message['type'][:40]!r}")
            return epoch

    def send(self, data: bytes) -> None:
        """Send a message soon; silently dropped if the connection is over."""
        socket = self._socket
        if socket is None or socket.closed:
            return
        task = asyncio.ensure_future(socket.send_bytes(data))
        self._sends.add(task)
        task.add_done_callback(self._on_sent)

    async def deliver(self, data: bytes) -> None:
        """Hand a message to the kernel before returning; dropped if the connection is over."""
        if self._socket is not None and not self._socket.closed:
            await self._socket.send_bytes(data)

    async def close(self) -> None:
        """Send what waits, then close."""
        if self._sends:
            await asyncio.wait(self._sends, timeout=1)
        if self._socket is not None:
            await self._socket.close()

    def _on_sent(self, task: "asyncio.Task[None]") -> None:
        self._sends.discard(task)
        if not task.cancelled():
            # A send that fails means that the connection is over, which the reader reports.
            task.exception()

    async def _authenticate(self, socket: aiohttp.ClientWebSocketResponse) -> Welcome:
        challenge = await self._expect(socket, MessageType.CHALLENGE)
        their_versions = read_versions(challenge.get("versions"))
        theirs, ours = challenge.get("nonce"), secrets.token_bytes(NONCE_SIZE)
        if not isinstance(theirs, bytes) or len(theirs) != NONCE_SIZE:
            raise SessionProtocolError("bad nonce from the controller")
        greeting = Greeting(theirs, ours, their_versions, VERSIONS)
        proof = broker_proof(self._owner.secret, greeting)
        # Also to a controller without a common version: it has to know which broker it refuses, and
        # why.
        await socket.send_bytes(
            pack_message(MessageType.AUTHENTICATE, versions=VERSIONS, nonce=ours, proof=proof)
        )
        answer = await self._expect(socket, MessageType.AUTHENTICATED)
        if not is_proof(controller_proof(self._owner.secret, greeting), answer.get("proof")):
            raise SessionProtocolError("the controller does not know the cluster's secret")
        try:
            self.version = common_version(their_versions, VERSIONS)
        except NoCommonVersionError as error:
            raise SessionProtocolError(str(error)) from None
        return Welcome(answer)

    async def _expect(
        self, socket: aiohttp.ClientWebSocketResponse, expected: MessageType
    ) -> dict[str, Any]:
        message = await self._next(socket)
        if message is None:
            raise SessionProtocolError(f"the controller closed before {expected}")
        if message["type"] != expected:
            raise SessionProtocolError(f"expected {expected}, got {message['type'][:40]!r}")
        return message

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any] | None:
        frame = await socket.receive()
        if frame.type is aiohttp.WSMsgType.BINARY:
            message = unpack_message(frame.data)
            if message["type"] == MessageType.REFUSED:
                code = message.get("code")
                raise SessionRefusedError(
                    code if isinstance(code, int) else -1, str(message.get("message"))[:1000]
                )
            return message
        if frame.type is aiohttp.WSMsgType.TEXT:
            raise SessionProtocolError("text from the controller")
        return None


def _notice_death(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Have the kernel end the connection once the machine behind it is gone without a word.

    Not every wait on a link has a time limit: a registration is answered when the store has it, and
    a link that another controller has superseded carries nothing. While such a link seems to last,
    the broker does not connect to the candidate that has come back under the same name.
    """
    raw = socket.get_extra_info("socket")
    if raw is None:
        return  # Closed meanwhile.
    lasting_ms = 1000 * (LINK_KEEPALIVE_IDLE_S + LINK_KEEPALIVE_INTERVAL_S * LINK_KEEPALIVE_PROBES)
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
    raw.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_KEEPIDLE, LINK_KEEPALIVE_IDLE_S)
    raw.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_KEEPINTVL, LINK_KEEPALIVE_INTERVAL_S)
    raw.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_KEEPCNT, LINK_KEEPALIVE_PROBES)
    # For what was sent and never acknowledged, which keep-alive does not look at.
    raw.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_USER_TIMEOUT, lasting_ms)
