"""Listening sockets, and what all connections of a broker share.

`bind` opens the sockets, so that port 0 becomes a number before the broker registers; `start`
begins to accept; `stop` lets replies leave and closes everything. A sweep once a second stands in
for timers of single connections: two thousand idle ones cost a millisecond of it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import (
    ACCEPTS_PER_TURN,
    CARRY_BYTES_MAX,
    CONNECTION_CREATIONS_BURST,
    CONNECTION_CREATIONS_PER_S,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_IP_MAX,
    FOLLOWER_SOCKET_BUFFER_BYTES,
    FRAME_BUFFERS_KEPT_BYTES,
    FRAME_SIZE_MAX,
    IDLE_CONNECTION_S,
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    KEEPALIVE_PROBES,
    LISTEN_BACKLOG,
    RECEIVE_BUFFER_BYTES,
    REQUEST_MEMORY_BYTES,
)
from fairlead_broker.net.connection import Connection
from fairlead_broker.net.expiry import ExpiryTimer
from fairlead_broker.net.frame_memory import FrameMemory
from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.net.read_ahead import ReadAhead
from fairlead_broker.net.ready_replies import ReadyReplies

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import RequestContext
    from fairlead_broker.listener import Listener

_LOGGER: Final = logging.getLogger(__name__)
_SWEEP_S: Final = 1.0
_ACCEPT_PAUSE_S: Final = 0.05
_DESCRIPTORS_PAUSE_S: Final = 1.0
_STOP_POLL_S: Final = 0.01
_SYSTEM_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of connections that settings can change."""

    connections_max: int = CONNECTIONS_MAX
    connections_per_ip_max: int = CONNECTIONS_PER_IP_MAX
    connection_creations_per_s: int = CONNECTION_CREATIONS_PER_S
    connection_creations_burst: int = CONNECTION_CREATIONS_BURST
    idle_s: int = IDLE_CONNECTION_S
    frame_size_max: int = FRAME_SIZE_MAX
    request_memory_bytes: int = REQUEST_MEMORY_BYTES
    listen_backlog: int = LISTEN_BACKLOG
    send_buffer_bytes: int = _SYSTEM_DEFAULT
    """`socket.send.buffer.bytes`; -1 leaves it to the system, which adapts it."""
    receive_buffer_bytes: int = _SYSTEM_DEFAULT


class Server:
    """All connections of a broker, on all its listeners."""

    def __init__(
        self,
        broker: Broker,
        listeners: Sequence[Listener],
        limits: ServerLimits | None = None,
        *,
        cluster_secret: bytes = b"",
    ) -> None:
        """Without `cluster_secret` nobody gets past the door of an internal listener."""
        self.broker = broker
        self.metrics = broker.metrics
        self.listeners: tuple[Listener, ...] = tuple(listeners)
        self.limits = limits or ServerLimits()
        self.cluster_secret = cluster_secret
        self.frame_size_max = self.limits.frame_size_max
        self.loop = asyncio.get_running_loop()
        self.receive_view = memoryview(bytearray(RECEIVE_BUFFER_BYTES + CARRY_BYTES_MAX))
        self.memory = FrameMemory(
            budget_bytes=self.limits.request_memory_bytes,
            free_bytes_max=FRAME_BUFFERS_KEPT_BYTES,
        )
        self.read_ahead = ReadAhead(self.loop)
        self.peer_log = PeerLog()
        self.tick = 0
        self.connections: set[Connection] = set()
        self._per_ip: dict[str, int] = {}
        self._sockets: list[tuple[socket.socket, Listener]] = []
        self._creations_left = float(self.limits.connection_creations_burst)
        self._creations_seen_s = self.loop.time()
        self.ready_replies = ReadyReplies(self.loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._accept_timers: set[asyncio.TimerHandle] = set()
        self._expiry = ExpiryTimer(
            self.loop, broker.clock, (broker.fetch_purgatory, broker.produce_purgatory)
        )

    def bind(self) -> tuple[Listener, ...]:
        """Open the listening sockets; the listeners as they are, with real port numbers."""
        bound: list[Listener] = []
        for listener in self.listeners:
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.setblocking(False)
                sock.bind((listener.host, listener.port))
                sock.listen(self.limits.listen_backlog)
            except OSError:
                sock.close()
                self._close_sockets()
                raise
            port = sock.getsockname()[1]
            bound_listener = replace(
                listener, port=port, advertised_port=listener.advertised_port or port
            )
            bound.append(bound_listener)
            self._sockets.append((sock, bound_listener))
        self.listeners = tuple(bound)
        return self.listeners

    def start(self) -> None:
        """Accept connections from now on."""
        for sock, listener in self._sockets:
            self.loop.add_reader(sock.fileno(), self._accept, sock, listener)
        self._sweep_timer = self.loop.call_later(_SWEEP_S, self._sweep)
        self.broker.answering = self.ready_replies

    async def stop(self, *, grace_s: float) -> None:
        """Accept no more, give unsent replies `grace_s` to leave, close everything."""
        self._close_sockets()
        deadline = self.loop.time() + grace_s
        # Polled: being told would cost every reply something, this costs a stop 10 ms.
        while self.loop.time() < deadline and self._has_unsent_replies():  # noqa: ASYNC110
            await asyncio.sleep(_STOP_POLL_S)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._expiry.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self.connections):
            connection.close()
        self.read_ahead.close()

    # What connections ask of it.

    def run_later(
        self, connection: Connection, context: RequestContext, coroutine: Coroutine[Any, Any, Any]
    ) -> None:
        """Run the coroutine of an admin request, which outlives its connection if need be."""
        task = self.loop.create_task(self._answer(connection, context, coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, connection: Connection) -> None:
        """`connection` has closed."""
        self.connections.discard(connection)
        self.metrics.connections_open = len(self.connections)
        self.metrics.connections_by_listener[connection.listener.name] -= 1
        host = connection.client_host
        count = self._per_ip.get(host, 0) - 1
        if count > 0:
            self._per_ip[host] = count
        else:
            self._per_ip.pop(host, None)

    async def _answer(
        self, connection: Connection, context: RequestContext, coroutine: Coroutine[Any, Any, Any]
    ) -> None:
        try:
            response = await coroutine
        except Exception:
            _LOGGER.exception("handling a request of %s failed", connection.client_host)
            connection.close("its request could not be handled")
        else:
            context.respond(response)

    def _has_unsent_replies(self) -> bool:
        return bool(self.ready_replies) or any(c.sender.unsent_bytes for c in self.connections)

    # Accepting.

    def _accept(self, listening: socket.socket, listener: Listener) -> None:
        for _ in range(min(ACCEPTS_PER_TURN, self._creations_allowed())):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self.peer_log.warn("accept", "cannot accept connections: %s", error.strerror)
                    self._pause_accepting(listening, listener, _DESCRIPTORS_PAUSE_S)
                return
            self._creations_left -= 1
            self._admit(sock, address[0], listener)
        if self._creations_left < 1:
            self._pause_accepting(listening, listener, _ACCEPT_PAUSE_S)

    def _creations_allowed(self) -> int:
        """Refill the allowance of new connections by the time that has passed."""
        now_s = self.loop.time()
        earned = (now_s - self._creations_seen_s) * self.limits.connection_creations_per_s
        self._creations_seen_s = now_s
        self._creations_left = min(
            self._creations_left + earned, float(self.limits.connection_creations_burst)
        )
        return int(self._creations_left)

    def _pause_accepting(
        self, listening: socket.socket, listener: Listener, pause_s: float
    ) -> None:
        """Leave newcomers in the kernel's queue for a moment."""
        self.loop.remove_reader(listening.fileno())

        def resume() -> None:
            self._accept_timers.discard(timer)
            self.loop.add_reader(listening.fileno(), self._accept, listening, listener)

        timer = self.loop.call_later(pause_s, resume)
        self._accept_timers.add(timer)

    def _admit(self, sock: socket.socket, client_host: str, listener: Listener) -> None:
        """Make a connection of an accepted socket, or close it when a limit says so."""
        limits = self.limits
        count = self._per_ip.get(client_host, 0)
        # Brokers must reach each other however many clients there are.
        is_refused = not listener.is_internal and (
            len(self.connections) >= limits.connections_max
            or count >= limits.connections_per_ip_max
        )
        if is_refused:
            self.metrics.connections_refused += 1
            sock.close()
            self.peer_log.warn(
                "connection refused",
                "refusing a connection of %s: it has %d of %d, all have %d of %d",
                client_host,
                count,
                limits.connections_per_ip_max,
                len(self.connections),
                limits.connections_max,
            )
            return
        try:
            self._configure(sock, listener)
        except OSError:
            # Reset by the peer before we looked at it.
            sock.close()
            return
        self._per_ip[client_host] = count + 1
        self.connections.add(Connection(self, listener, sock, client_host))
        self.metrics.connections_opened += 1
        self.metrics.connections_by_listener[listener.name] += 1
        self.metrics.connections_open = len(self.connections)

    def _configure(self, sock: socket.socket, listener: Listener) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
        send_buffer_bytes = self.limits.send_buffer_bytes
        if listener.is_internal:
            send_buffer_bytes = FOLLOWER_SOCKET_BUFFER_BYTES
        for option, size in (
            (socket.SO_SNDBUF, send_buffer_bytes),
            (socket.SO_RCVBUF, self.limits.receive_buffer_bytes),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    # Once a second.

    def _sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(_SWEEP_S, self._sweep)
        self.tick += 1
        self.peer_log.tick()
        self.metrics.cold_reads = self.read_ahead.jobs_count
        self.metrics.cold_read_bytes = self.read_ahead.bytes_count
        idle_s = self.limits.idle_s
        for connection in list(self.connections):
            connection.check_deadlines(self.tick, idle_s)

    def _close_sockets(self) -> None:
        for timer in self._accept_timers:
            timer.cancel()
        self._accept_timers.clear()
        for sock, _ in self._sockets:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
