"""How candidates hear each other: the holder sends beats over a WebSocket to the standbys.

Both sides prove that they know the cluster's secret, as a broker and its controller do.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Final

import aiohttp
from aiohttp import web

from fairlead_controller.sessions.handshake import STANDBY, authenticate, turn_away
from fairlead_controller.sessions.rare_log import RareLog
from fairlead_controller.sessions.session_tls import peer_of
from fairlead_controller.zookeeper.holder_judgement import BEAT_INTERVAL_MS, HolderSight
from fairlead_model.codec import CodecError
from fairlead_model.session.refusals import RefusedError
from fairlead_model.session.session_messages import pack_message, unpack_message
from fairlead_model.session.session_protocol import (
    HANDSHAKE_SIZE_MAX,
    HANDSHAKE_TIMEOUT_S,
    NONCE_SIZE,
    VERSIONS,
    Greeting,
    MessageType,
    SessionProtocolError,
    broker_proof,
    controller_proof,
    is_proof,
    read_versions,
)
from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.followed_certificate import FollowedPeer
from fairlead_tls.session_client import check_controller, tls_options
from fairlead_zookeeper.znodes import CandidateRecord

logger = logging.getLogger(__name__)

BEATS_PATH: Final = "/beats"
BEAT: Final = "?beat"
LISTENERS_MAX: Final = 64
"""Standbys that may listen to one holder."""
CONNECT_TIMEOUT_S: Final = 0.5
RETRY_S: Final = 0.1


def monotonic_ms() -> int:
    """Return milliseconds of a clock that nobody can set."""
    return time.monotonic_ns() // 1_000_000


class Beats:
    """The holder's side."""

    def __init__(self, secret: bytes, *, is_holder: Callable[[], bool]) -> None:
        self._secret = secret
        self._is_holder = is_holder
        self._listeners = 0
        self._log = RareLog(logger)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Send beats to a candidate as long as this process holds the epoch."""
        peer = peer_of(request)
        if peer is not None and peer.broker_id is not None:
            raise web.HTTPForbidden(text=f"only controllers listen here, not {peer}")
        if not self._is_holder():
            raise web.HTTPServiceUnavailable(text="this candidate stands by")
        if self._listeners >= LISTENERS_MAX:
            raise web.HTTPServiceUnavailable(text="too many candidates listen")
        socket = web.WebSocketResponse(max_msg_size=HANDSHAKE_SIZE_MAX, compress=False, timeout=1.0)
        try:
            await socket.prepare(request)
        except ConnectionError:
            return web.Response()
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await authenticate(socket, request, self._secret, STANDBY)
            # A place is for who has proved itself: before that, the door's limits apply.
            if self._listeners < LISTENERS_MAX:
                await self._send_beats(socket)
            await socket.close()
        except (SessionProtocolError, CodecError, TimeoutError, RefusedError) as error:
            await turn_away(socket, request.remote, error)
        except ConnectionError as error:
            self._log.note("beats", "a candidate listens no more: %s", error)
        return socket

    async def _send_beats(self, socket: web.WebSocketResponse) -> None:
        self._listeners += 1
        try:
            while self._is_holder() and not socket.closed:
                await socket.send_bytes(pack_message(BEAT))
                await asyncio.sleep(BEAT_INTERVAL_MS / 1000)
        finally:
            self._listeners -= 1


class HolderWatch:
    """The standby's side: what it hears from one holder."""

    def __init__(
        self, holder: CandidateRecord, secret: bytes, certificate: FollowedPeer | None
    ) -> None:
        """With a `certificate`, it uses TLS."""
        self.sight = HolderSight()
        self._holder = holder
        self._certificate = certificate
        url = holder.session_url
        if certificate is not None:
            url = f"wss://{url.partition('://')[2]}"
        self._url = f"{url}{BEATS_PATH}"
        self._secret = secret
        self._problem = ""

    async def run(self) -> None:
        """Listen until cancelled; connect again whenever the connection ends."""
        connector = aiohttp.TCPConnector(use_dns_cache=False)
        async with aiohttp.ClientSession(connector=connector) as http:
            while True:
                try:
                    await self._listen(http)
                except (TlsRefusedError, aiohttp.ClientConnectorCertificateError) as error:
                    self._note(error)
                except aiohttp.ClientConnectorError as error:
                    if isinstance(error.os_error, ConnectionRefusedError):
                        self.sight.on_refused()
                    self._note(error)
                except (
                    aiohttp.ClientError,
                    OSError,
                    TimeoutError,
                    SessionProtocolError,
                ) as error:
                    self._note(error)
                # If the holder was heard a moment ago, try again soon, to learn whether it is still
                # there.
                await asyncio.sleep(RETRY_S / 10 if self.sight.heard_ms is not None else RETRY_S)

    async def _listen(self, http: aiohttp.ClientSession) -> None:
        timeout = aiohttp.ClientWSTimeout(ws_close=0.5)
        own = None if self._certificate is None else self._certificate.current
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            socket = await http.ws_connect(
                self._url,
                max_msg_size=HANDSHAKE_SIZE_MAX,
                compress=0,
                timeout=timeout,
                **tls_options(own),
            )
        try:
            if own is not None:
                check_controller(socket.get_extra_info("ssl_object"), own)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await self._prove(socket)
            while await _next(socket) is not None:
                self.sight.on_beat(monotonic_ms())
                self._problem = ""
        finally:
            await socket.close()

    async def _prove(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        challenge = await _expect(socket, MessageType.CHALLENGE)
        theirs, ours = challenge.get("nonce"), secrets.token_bytes(NONCE_SIZE)
        if not isinstance(theirs, bytes) or len(theirs) != NONCE_SIZE:
            raise SessionProtocolError("bad nonce")
        versions = read_versions(challenge.get("versions"))
        greeting = Greeting(theirs, ours, versions, VERSIONS)
        proof = broker_proof(self._secret, greeting)
        await socket.send_bytes(
            pack_message(MessageType.AUTHENTICATE, versions=VERSIONS, nonce=ours, proof=proof)
        )
        answer = await _expect(socket, MessageType.AUTHENTICATED)
        if not is_proof(controller_proof(self._secret, greeting), answer.get("proof")):
            raise SessionProtocolError("it does not know the cluster's secret")

    def _note(self, error: Exception) -> None:
        problem = f"{type(error).__name__}: {error}"
        if problem != self._problem:
            self._problem = problem
            logger.info("no beats of %s at %s: %s", self._holder.identity, self._url, problem)


async def _expect(
    socket: aiohttp.ClientWebSocketResponse, expected: MessageType
) -> dict[str, object]:
    message = await _next(socket)
    if message is None or message["type"] != expected:
        raise SessionProtocolError(f"closed, or something else, before {expected}")
    return message


async def _next(socket: aiohttp.ClientWebSocketResponse) -> dict[str, object] | None:
    frame = await socket.receive()
    return unpack_message(frame.data) if frame.type is aiohttp.WSMsgType.BINARY else None
