"""Ports for probes, metrics and pages. A client that keeps connections open cannot block others.

These connections use file descriptors of the process, as do files and sessions. A connection above
the limit closes the one that has been silent longest, so a probe can always connect.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from aiohttp import web

HTTP_CONNECTIONS_MAX: Final = 200
"""Most connections to a port for probes, metrics and pages."""
HTTP_KEEPALIVE_S: Final = 75
"""How long a connection may wait for its next request, or take to send a request's head."""
ACCEPTS_PER_TURN: Final = 16
"""Small, because each connection has its file descriptor before it is counted."""
BACKLOG: Final = 128


class BoundedSite(web.SockSite):
    """A listening socket of a runner that has been set up."""

    def __init__(self, runner: web.AppRunner, listening: socket.socket) -> None:
        super().__init__(runner, listening)
        self._listening = listening
        self._connections: dict[_Connection, None] = {}
        """The open connections, the one that has been silent longest first."""

    async def start(self) -> None:
        """Serve connections until the runner's cleanup."""
        await web.BaseSite.start(self)
        serve = self._runner.server
        if serve is None:
            raise RuntimeError("the HTTP server has not been set up")
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._open(serve), sock=self._listening, backlog=ACCEPTS_PER_TURN
        )
        # asyncio has one number for both: the accepts in an iteration, and the kernel's queue.
        self._listening.listen(BACKLOG)

    def _open(self, serve: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        if len(self._connections) >= HTTP_CONNECTIONS_MAX:
            longest_silent = next(iter(self._connections))
            # Remove it at once, so that the next new connection closes another one.
            del self._connections[longest_silent]
            longest_silent.abort()
        connection = _Connection(serve(), self._connections)
        self._connections[connection] = None
        return connection


class _Connection(asyncio.Protocol):
    """Wraps the HTTP server's protocol, and notes when data arrives."""

    def __init__(self, inner: asyncio.Protocol, connections: "dict[_Connection, None]") -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._is_aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("not a stream")
        self._transport = transport
        self._inner.connection_made(transport)
        if self._is_aborted:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self in self._connections:
            del self._connections[self]
            self._connections[self] = None
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.pop(self, None)
        self._inner.connection_lost(exc)

    def abort(self) -> None:
        """Close at once, or as soon as there is a transport."""
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()
