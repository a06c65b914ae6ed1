"""Listening sockets, and what all connections of a broker share.

Limits are the clients': brokers reach each other however many clients there are (as in Kafka,
KIP-402 and KIP-612). A peer of the brokers' listener has other limits until it has proved that it
is a broker.

`bind` opens the sockets, so that port 0 becomes a number before the broker registers; `start`
begins to accept; `stop` lets replies leave and closes everything. A sweep once a second stands in
for timers of single connections: two thousand idle ones cost a millisecond of it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import struct
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import (
    ACCEPTS_PER_TURN,
    CARRY_BYTES_MAX,
    CONNECTION_CREATIONS_BURST,
    CONNECTION_CREATIONS_PER_S,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_IP_MAX,
    DESCRIPTORS_KEPT_MAX,
    FOLLOWER_SOCKET_BUFFER_BYTES,
    FRAME_BUFFERS_KEPT_BYTES,
    FRAME_SIZE_MAX,
    IDLE_CONNECTION_S,
    INTERNAL_CREATIONS_BURST,
    INTERNAL_CREATIONS_PER_S,
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    KEEPALIVE_PROBES,
    LISTEN_BACKLOG,
    NEAR_ROUND_TRIP_US,
    NEAR_SEND_BUFFER_BYTES,
    QUOTA_SWEEP_S,
    RECEIVE_BUFFER_BYTES,
    REQUEST_MEMORY_BYTES,
    STRANGER_S,
    STRANGERS_MAX,
    STRANGERS_PER_IP_MAX,
    UNPROVED_MAX,
    UNPROVED_PER_IP_MAX,
    UNPROVED_S,
)
from fairlead_broker.net.connection import Connection
from fairlead_broker.net.connection_quotas import ConnectionQuotas
from fairlead_broker.net.creation_allowance import CreationAllowance, creations_burst
from fairlead_broker.net.delayed_sockets import DelayedSockets
from fairlead_broker.net.expiry import ExpiryTimer
from fairlead_broker.net.frame_memory import FrameMemory
from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.net.read_ahead import ReadAhead
from fairlead_broker.net.ready_replies import ReadyReplies
from fairlead_broker.net.sasl_connection import SaslConnection
from fairlead_broker.net.transport import open_plain
from fairlead_model.host_address import peer_address
from fairlead_model.session.unproved_peers import UnprovedPeers
from fairlead_sockets.listening import bound_port, open_listening_socket
from fairlead_tls.handshake_pool import HandshakePool

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.authorization import Authorizer
    from fairlead_broker.broker import Broker
    from fairlead_broker.listener import Listener
    from fairlead_broker.net.logins import Logins
    from fairlead_broker.net.transport import OpenTransport
    from fairlead_broker.quota.client_quotas import ClientQuotas
    from fairlead_broker.replication.purgatory import Operation

_LOGGER: Final = logging.getLogger(__name__)
_SWEEP_S: Final = 1.0
_ACCEPT_PAUSE_S: Final = 0.05
_HANDSHAKES_PAUSE_S: Final = 0.01
_DESCRIPTORS_PAUSE_S: Final = 1.0
_STOP_POLL_S: Final = 0.01
_SYSTEM_DEFAULT: Final = -1
_ROUND_TRIP: Final = struct.Struct("=68xI")
"""`tcpi_rtt` in `struct tcp_info` (linux/tcp.h), microseconds."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of connections that settings can change."""

    connections_max: int = CONNECTIONS_MAX
    connections_per_ip_max: int = CONNECTIONS_PER_IP_MAX
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """Address in normal form → its own limit."""
    connection_creations_per_s: int = CONNECTION_CREATIONS_PER_S
    connection_creations_burst: int = CONNECTION_CREATIONS_BURST
    idle_s: int | None = IDLE_CONNECTION_S
    """Idle time after which a connection is closed; none: never."""
    frame_size_max: int = FRAME_SIZE_MAX
    request_memory_bytes: int = REQUEST_MEMORY_BYTES
    listen_backlog: int = LISTEN_BACKLOG
    send_buffer_bytes: int = _SYSTEM_DEFAULT
    """`socket.send.buffer.bytes`; -1: bounded for who is near, else the system adapts it."""
    receive_buffer_bytes: int = _SYSTEM_DEFAULT
    client_descriptor_max: int = 0
    """The highest descriptor that a client's connection may have; 0: by the process' limit."""


def idle_limit_s(idle_ms: int) -> int | None:
    """Return for how many seconds a connection may be idle; none: for ever.

    Args:
        idle_ms: `connections.max.idle.ms`. Negative means never, as Kafka's broker takes it.
    """
    return None if idle_ms < 0 else max(idle_ms // 1_000, 1)


class Server:
    """All connections of a broker, on all its listeners."""

    def __init__(
        self,
        broker: Broker,
        listeners: Sequence[Listener],
        limits: ServerLimits | None = None,
        *,
        cluster_secret: bytes = b"",
        transports: Mapping[str, OpenTransport] = MappingProxyType({}),
        logins: Logins | None = None,
        authorizer: Authorizer | None = None,
        client_quotas: ClientQuotas | None = None,
    ) -> None:
        """Without `cluster_secret` no peer passes the check of an internal listener.

        `transports` has those of listeners that do not speak on plain sockets, by their names,
        and `logins` the listeners whose clients log in.
        Without `authorizer` clients may do everything, without `client_quotas` as much as they can.
        """
        self.broker = broker
        self.metrics = broker.metrics
        self.listeners: tuple[Listener, ...] = tuple(listeners)
        self.limits = limits or ServerLimits()
        self.cluster_secret = cluster_secret
        self.authorizer, self._client_quotas = authorizer, client_quotas
        self._transports = transports
        self._logins = logins
        self._sasl_listeners = frozenset(logins.settings if logins is not None else ())
        self.frame_size_max = self.limits.frame_size_max
        self.loop = asyncio.get_running_loop()
        self._handshakes = HandshakePool(self.loop)
        # Brokers do not wait behind clients that all come back at once.
        self._peer_handshakes = HandshakePool(self.loop)
        self.receive_view = memoryview(bytearray(RECEIVE_BUFFER_BYTES + CARRY_BYTES_MAX))
        self.memory = FrameMemory(
            budget_bytes=self.limits.request_memory_bytes,
            free_bytes_max=FRAME_BUFFERS_KEPT_BYTES,
        )
        self.read_ahead = ReadAhead(self.loop, broker.on_unreadable)
        self.peer_log, self._delayed_sockets = PeerLog(), DelayedSockets(self.loop)
        self.tick = 0
        self.connections: set[Connection] = set()
        self.unproved: UnprovedPeers[Connection] = UnprovedPeers(
            total_max=UNPROVED_MAX, per_address_max=UNPROVED_PER_IP_MAX, patience_s=UNPROVED_S
        )
        self.strangers: UnprovedPeers[Connection] = UnprovedPeers(
            total_max=STRANGERS_MAX, per_address_max=STRANGERS_PER_IP_MAX, patience_s=STRANGER_S
        )
        """Clients of listeners with TLS or SASL that have yet to be let in."""
        self._clients = 0
        self._clients_per_ip: dict[str, int] = {}
        self._client_descriptor_max = (
            self.limits.client_descriptor_max or _find_client_descriptor_max()
        )
        self._sockets: list[tuple[socket.socket, Listener]] = []
        now_s = self.loop.time()
        self._client_creations = CreationAllowance(
            per_s=self.limits.connection_creations_per_s,
            burst=self.limits.connection_creations_burst,
            now_s=now_s,
        )
        self._internal_creations = CreationAllowance(
            per_s=INTERNAL_CREATIONS_PER_S, burst=INTERNAL_CREATIONS_BURST, now_s=now_s
        )
        self.ready_replies = ReadyReplies(self.loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._accept_timers: set[asyncio.TimerHandle] = set()
        purgatories = (broker.fetch_purgatory, broker.produce_purgatory)
        self._expiry = ExpiryTimer(self.loop, broker.clock, purgatories, self._on_parked_fault)

    def _on_parked_fault(self, operation: Operation) -> None:
        """Tell of a parked request that has raised what it never should, and end it."""
        self.peer_log.warn("parked", "a request that waited has failed", trace=True)
        operation.on_fault()

    def bind(self) -> tuple[Listener, ...]:
        """Open the listening sockets; the listeners as they are, with real port numbers."""
        bound: list[Listener] = []
        for listener in self.listeners:
            try:
                sock = open_listening_socket(
                    listener.host,
                    listener.port,
                    backlog=self.limits.listen_backlog,
                    receive_buffer_bytes=self.limits.receive_buffer_bytes,
                )
            except OSError:
                self._close_sockets()
                raise
            port = bound_port(sock)
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
        if self._logins is not None:
            self._logins.start()
        self.broker.answering = self.ready_replies
        if self._client_quotas is not None:
            self._client_quotas.on_changed = self._on_quotas_changed

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
        self._delayed_sockets.close()
        self.read_ahead.close()
        self._handshakes.close()
        self._peer_handshakes.close()
        if self._logins is not None:
            await self._logins.stop()

    def quotas_for(self, connection: Connection) -> ConnectionQuotas | None:
        """Return the quotas of a connection's client; None if no quota can apply to it.

        Quotas never apply to brokers, nor to clients that have not logged in yet: such clients
        would use up the quota that they share, and nobody could log in any more.
        """
        quotas = self._client_quotas
        if quotas is None or not quotas.binds_clients:
            return None
        if connection.listener.is_internal or not connection.is_known:
            return None
        return ConnectionQuotas(quotas, connection)

    def _on_quotas_changed(self) -> None:
        """Check the quotas of every client again, even of waiting ones."""
        for connection in list(self.connections):
            connection.quotas = self.quotas_for(connection)
            if connection.is_muted:
                # Not now: what it has sent meanwhile is handled then, by the image as a whole.
                self.loop.call_soon(connection.unmute)

    def run_later(
        self, connection: Connection, context: RequestContext, coroutine: Coroutine[Any, Any, Any]
    ) -> None:
        """Run the coroutine of an admin request, which outlives its connection if need be."""
        task = self.loop.create_task(self._answer(connection, context, coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def handshakes_on(self, listener: Listener) -> HandshakePool:
        """Return where the TLS handshakes of a listener compute."""
        return self._peer_handshakes if listener.is_internal else self._handshakes

    def forget(self, connection: Connection) -> None:
        """Forget `connection`, which has closed."""
        self.connections.discard(connection)
        self.metrics.connections_open = len(self.connections)
        self.metrics.connections_by_listener[connection.listener.name] -= 1
        if connection.listener.is_internal:
            self.unproved.discard(connection)
            return
        self.strangers.discard(connection)
        self._clients -= 1
        host = connection.client_host
        count = self._clients_per_ip.get(host, 0) - 1
        if count > 0:
            self._clients_per_ip[host] = count
        else:
            self._clients_per_ip.pop(host, None)

    def on_proved(self, connection: Connection) -> None:
        """Lift the limits of `connection`, whose peer has proved that it is a broker."""
        self.unproved.discard(connection)

    def on_let_in(self, connection: Connection) -> None:
        """Lift the limits of `connection`, whose client has shown who it is."""
        self.strangers.discard(connection)

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

    def _accept(self, listening: socket.socket, listener: Listener) -> None:
        creations = self._internal_creations if listener.is_internal else self._client_creations
        allowed = creations.available(self.loop.time()) if self._has_room(listener) else 0
        for _ in range(min(ACCEPTS_PER_TURN, allowed)):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self.peer_log.warn("accept", "cannot accept connections: %s", error.strerror)
                    self._pause_accepting(listening, listener, _DESCRIPTORS_PAUSE_S)
                return
            creations.spend()
            client_host = peer_address(address[0])
            if listener.is_internal:
                self._admit_unproved(sock, client_host, listener)
            else:
                self._admit_client(sock, client_host, listener)
        if creations.is_spent:
            self._pause_accepting(listening, listener, _ACCEPT_PAUSE_S)
        elif not self._has_room(listener):
            self._pause_accepting(listening, listener, _HANDSHAKES_PAUSE_S)

    def _has_room(self, listener: Listener) -> bool:
        """Tell whether newcomers would find the threads of handshakes free enough."""
        return listener.name not in self._transports or self.handshakes_on(listener).has_room

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

    def set_connection_limits(
        self,
        *,
        total: int,
        per_ip: int,
        creations_per_s: int,
        per_ip_overrides: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Go by other limits from now on; connections that there are already stay."""
        self.limits = replace(
            self.limits,
            connections_max=total,
            connections_per_ip_max=per_ip,
            connections_per_ip_overrides=per_ip_overrides,
            connection_creations_per_s=creations_per_s,
            connection_creations_burst=creations_burst(creations_per_s),
        )
        self._client_creations.change(
            per_s=creations_per_s, burst=self.limits.connection_creations_burst
        )

    def _admit_client(self, sock: socket.socket, client_host: str, listener: Listener) -> None:
        """Make a connection of an accepted socket, or close it when a limit says so."""
        limits, quotas = self.limits, self._client_quotas
        count = self._clients_per_ip.get(client_host, 0)
        allowed = limits.connections_per_ip_overrides.get(
            client_host, limits.connections_per_ip_max
        )
        if (
            self._clients >= limits.connections_max
            or count >= allowed
            or sock.fileno() > self._client_descriptor_max
        ):
            self.metrics.connections_refused += 1
            descriptor = sock.fileno()
            sock.close()
            self.peer_log.warn(
                "connection refused",
                "refusing a connection of %s: it has %d of %d, all have %d of %d, "
                "and descriptor %d of %d would be its",
                client_host,
                count,
                allowed,
                self._clients,
                limits.connections_max,
                descriptor,
                self._client_descriptor_max,
            )
            return
        if quotas is not None and quotas.binds_addresses:
            delay_ms = quotas.delay_connection(client_host, self.broker.clock.monotonic_ms())
            if delay_ms:
                self.metrics.note_throttle("connection_creation", delay_ms)
                self._delayed_sockets.close_later(sock, delay_ms)
                return
        connection = self._add(sock, client_host, listener)
        if connection is None:
            return
        self._clients += 1
        self._clients_per_ip[client_host] = count + 1
        if listener.name in self._transports or listener.name in self._sasl_listeners:
            leaving = self.strangers.add(connection, client_host, self.tick)
            if leaving is not None:
                self.metrics.connections_refused += 1
                leaving.close("too many clients have not been let in yet")

    def _admit_unproved(self, sock: socket.socket, client_host: str, listener: Listener) -> None:
        """Make a connection of a socket that has yet to prove that it is a broker's."""
        connection = self._add(sock, client_host, listener)
        if connection is None:
            return
        leaving = self.unproved.add(connection, client_host, self.tick)
        if leaving is not None:
            self.metrics.connections_refused += 1
            leaving.close("too many peers have not proved that they are brokers")

    def _add(self, sock: socket.socket, client_host: str, listener: Listener) -> Connection | None:
        try:
            self._configure(sock, listener)
        except OSError:
            # Reset by the peer before we looked at it.
            sock.close()
            return None
        open_transport = self._transports.get(listener.name, open_plain)
        connection: Connection
        if self._logins is not None and listener.name in self._sasl_listeners:
            connection = SaslConnection(
                self, listener, sock, client_host, open_transport, logins=self._logins
            )
        else:
            connection = Connection(self, listener, sock, client_host, open_transport)
        self.connections.add(connection)
        self.metrics.connections_opened += 1
        self.metrics.connections_by_listener[listener.name] += 1
        self.metrics.connections_open = len(self.connections)
        return connection

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
        elif (
            send_buffer_bytes == _SYSTEM_DEFAULT
            and listener.name not in self._transports
            and 0 < _round_trip_us(sock) < NEAR_ROUND_TRIP_US
        ):
            send_buffer_bytes = NEAR_SEND_BUFFER_BYTES
        if send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)

    def _sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(_SWEEP_S, self._sweep)
        self.pass_second()

    def pass_second(self) -> None:
        """Close what has been too slow; called once a second."""
        self.tick += 1
        self.peer_log.tick()
        self.metrics.cold_reads = self.read_ahead.jobs_count
        self.metrics.cold_read_bytes = self.read_ahead.bytes_count
        idle_s = self.limits.idle_s
        for connection in list(self.connections):
            connection.check_deadlines(self.tick, idle_s)
        if self._client_quotas is not None:
            self.metrics.quota_meters = len(self._client_quotas)
            if self.tick % QUOTA_SWEEP_S == 0:
                self._client_quotas.forget_quiet(self.broker.clock.monotonic_ms())
        for connection in self.unproved.take_overdue(self.tick):
            connection.close(f"it has not proved within {UNPROVED_S} s that it is a broker's")
        for connection in self.strangers.take_overdue(self.tick):
            connection.close(f"it was not let in within {STRANGER_S} s")

    def _close_sockets(self) -> None:
        for timer in self._accept_timers:
            timer.cancel()
        self._accept_timers.clear()
        for sock, _ in self._sockets:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()


def _round_trip_us(sock: socket.socket) -> int:
    """Return how far a client is, as the kernel measured by its handshake; 0 if it does not say."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROUND_TRIP.size)
        (round_trip_us,) = _ROUND_TRIP.unpack(info)
    except (OSError, struct.error):
        return 0
    return int(round_trip_us)


def _find_client_descriptor_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - min(DESCRIPTORS_KEPT_MAX, soft // 8)
