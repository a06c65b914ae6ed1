"""Where brokers of all clusters come in: `/NAMESPACE/CLUSTER/session`.

A broker keeps a connection to every candidate. While this one is a standby, or has not yet taken
over the broker's cluster, the broker proves itself, is told so, and waits on its connection; the
moment the cluster is taken over it is told that, too, and registers over that connection. A cluster
that is not known here, or whose secret is not, is answered with 503: the broker tries again.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from aiohttp import web

from fairlead_controller.session_handshake import STANDBY, authenticate, turn_away
from fairlead_controller.session_messages import pack_message
from fairlead_controller.session_server import SessionServer
from fairlead_model.codec import CodecError
from fairlead_model.refusals import RefusedError
from fairlead_model.session_protocol import (
    HANDSHAKE_TIMEOUT_S,
    MESSAGE_SIZE_MAX,
    SESSION_PATH,
    STANDBY_INTERVAL_MS,
    MessageType,
    SessionProtocolError,
)

logger = logging.getLogger(__name__)

ClusterKey = tuple[str, str]
"""Namespace and name of a LogCluster."""

HANDSHAKES_MAX: Final = 64
WAITING_MAX: Final = 5000
"""Brokers that wait for this candidate to take over; more are turned away."""


class SessionGate:
    """One for a process; lets brokers wait, or in."""

    def __init__(self, find_secret: Callable[[ClusterKey], bytes | None]) -> None:
        self._find_secret = find_secret
        self._servers: dict[ClusterKey, SessionServer] = {}
        self._opened: dict[ClusterKey, asyncio.Event] = {}
        self._handshakes = 0
        self.waiting = 0
        """Brokers that wait, for metrics."""

    def build_application(self) -> web.Application:
        """Give the application for the sessions' port."""
        application = web.Application()
        application.router.add_get(f"/{{namespace}}/{{cluster}}{SESSION_PATH}", self.serve)
        return application

    def open(self, key: ClusterKey, server: SessionServer) -> None:
        """Let the brokers of a cluster in: those that wait, and all that come."""
        self._servers[key] = server
        self._opened.pop(key, asyncio.Event()).set()

    def close(self, key: ClusterKey) -> None:
        """Let the brokers of a cluster wait again; those that are in are the server's business."""
        self._servers.pop(key, None)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection of a broker."""
        key = (request.match_info["namespace"], request.match_info["cluster"])
        server = self._servers.get(key)
        if server is not None:
            return await server.serve(request)
        secret = self._find_secret(key)
        if secret is None:
            raise web.HTTPServiceUnavailable(text="no such cluster is known here yet")
        if self._handshakes >= HANDSHAKES_MAX or self.waiting >= WAITING_MAX:
            raise web.HTTPServiceUnavailable(text="too many brokers")
        socket = web.WebSocketResponse(max_msg_size=MESSAGE_SIZE_MAX, compress=False, timeout=1.0)
        await socket.prepare(request)
        self._handshakes += 1
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await authenticate(socket, secret, STANDBY)
        except (SessionProtocolError, CodecError, TimeoutError, RefusedError) as error:
            await turn_away(socket, request.remote, error)
            return socket
        finally:
            self._handshakes -= 1
        server = await self._wait_open(key, socket)
        if server is None:
            await socket.close()
        else:
            await server.serve_waiting(socket, request)
        return socket

    async def _wait_open(
        self, key: ClusterKey, socket: web.WebSocketResponse
    ) -> SessionServer | None:
        """Wait with a broker; None if it goes, or says something out of turn."""
        self.waiting += 1
        reading = asyncio.create_task(socket.receive())
        try:
            while (server := self._servers.get(key)) is None:
                opened = self._opened.setdefault(key, asyncio.Event())
                opening = asyncio.create_task(opened.wait())
                await asyncio.wait(
                    {reading, opening},
                    timeout=STANDBY_INTERVAL_MS / 1000,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                opening.cancel()
                if reading.done():
                    return None
                if key not in self._servers:
                    await socket.send_bytes(pack_message(MessageType.STANDBY))
            return server
        except ConnectionError:
            return None
        finally:
            self.waiting -= 1
            reading.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await reading
