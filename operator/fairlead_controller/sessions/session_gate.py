"""Where brokers connect to a process that may be a standby, and may serve several clusters.

A broker keeps a connection to every candidate. While this candidate is a standby, or has not yet
taken over the broker's cluster, the broker authenticates, is told that it has to wait, and waits on
its connection. When the cluster has been taken over, the broker is told that, too, and registers
over that connection. If this process does not know the cluster or its secret, it answers 503, and
the broker tries again.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from aiohttp import web

from fairlead_controller.sessions.handshake import STANDBY, authenticate, turn_away
from fairlead_controller.sessions.rare_log import RareLog
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.sessions.session_tls import peer_of
from fairlead_model.codec import CodecError
from fairlead_model.host_address import peer_address
from fairlead_model.session.refusals import RefusedError
from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import (
    HANDSHAKE_TIMEOUT_S,
    MESSAGE_SIZE_MAX,
    STANDBY_INTERVAL_MS,
    MessageType,
    SessionProtocolError,
)
from fairlead_tls.peer_names import PeerName

_log = RareLog(logging.getLogger(__name__))

K = TypeVar("K", bound=tuple[str, ...])
"""The key of a cluster: the variable parts of its path."""

WAITING_MAX: Final = 5000
"""Brokers that may wait for this candidate to take over; more are refused."""


def _find_no_problem(key: tuple[str, ...], peer: PeerName | None) -> str | None:
    """Find no problem: any peer that `SessionDoor` has accepted may authenticate."""
    return None


class SessionGate(Generic[K]):
    """Admits brokers to the clusters of one process."""

    def __init__(
        self,
        find_secret: Callable[[K], bytes | None],
        *,
        path: str,
        key_of: Callable[[web.Request], K],
        problem_of: Callable[[K, PeerName | None], str | None] = _find_no_problem,
    ) -> None:
        """`path` is the route of a cluster; `key_of` tells which cluster a request names.

        `problem_of` tells why a peer with this certificate, or none, may not speak for a cluster.
        """
        self._problem_of = problem_of
        self._find_secret = find_secret
        self._path = path
        self._key_of = key_of
        self._servers: dict[K, SessionServer] = {}
        self._opened: dict[K, asyncio.Event] = {}
        self.waiting = 0
        """Number of brokers that wait, for metrics."""

    def build_application(self) -> web.Application:
        """Return the application for the sessions' port."""
        application = web.Application()
        application.router.add_get(self._path, self.serve)
        return application

    def open(self, key: K, server: SessionServer) -> None:
        """Let the brokers of a cluster register: those that wait, and those that connect later."""
        self._servers[key] = server
        self._opened.pop(key, asyncio.Event()).set()

    def close(self, key: K) -> None:
        """Let new brokers of a cluster wait again; their server keeps the existing sessions."""
        self._servers.pop(key, None)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection of a broker."""
        key = self._key_of(request)
        problem = self._problem_of(key, peer_of(request))
        if problem is not None:
            remote = peer_address(request.remote or "an unknown address")
            _log.note("peers refused", "refused %s: %s", remote, problem)
            raise web.HTTPForbidden(text=problem)
        server = self._servers.get(key)
        if server is not None:
            return await server.serve(request)
        secret = self._find_secret(key)
        if secret is None:
            raise web.HTTPServiceUnavailable(text="no such cluster is known here yet")
        if self.waiting >= WAITING_MAX:
            raise web.HTTPServiceUnavailable(text="too many brokers")
        socket = web.WebSocketResponse(max_msg_size=MESSAGE_SIZE_MAX, compress=False, timeout=1.0)
        try:
            await socket.prepare(request)
        except ConnectionError:
            # The peer left first, or newer connections displaced it before it had authenticated.
            return web.Response()
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await authenticate(socket, request, secret, STANDBY)
        except (SessionProtocolError, CodecError, TimeoutError, RefusedError) as error:
            await turn_away(socket, request.remote, error)
            return socket
        server = await self._wait_open(key, socket)
        if server is None:
            await socket.close()
        else:
            await server.serve_waiting(socket, request)
        return socket

    async def _wait_open(self, key: K, socket: web.WebSocketResponse) -> SessionServer | None:
        """Let a broker wait; return None if it disconnects or breaks the protocol."""
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
