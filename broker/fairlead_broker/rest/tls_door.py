"""HTTPS: TLS handshakes, bounded in number and in time, and the principals of certificates.

A connection is a stranger from its accept until its handshake is done, and only then does the HTTP
server get it. Strangers have the limits of Kafka listeners, so a flood of them closes its own
connections. Each new connection gets the certificate that is current then.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from fairlead_broker.limits import (
    STRANGER_S,
    STRANGERS_MAX,
    STRANGERS_PER_IP_MAX,
)
from fairlead_model.host_address import peer_address
from fairlead_model.session.unproved_peers import UnprovedPeers
from fairlead_tls.handshake_pool import HandshakePool
from fairlead_tls.tls_layer import TlsLayer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.net.peer_log import PeerLog
    from fairlead_broker.net.tls_peers import Peer
    from fairlead_broker.net.tls_transport import TlsTransport

_SWEEP_S: Final = 1.0


class _Terms:
    """The current settings and certificate of the listener."""

    allows_plaintext = False

    def __init__(self, listener: TlsTransport) -> None:
        self._listener = listener

    def open_context(self) -> ssl.SSLContext:
        return self._listener.certificate.current.context

    def identify(self, tls: ssl.SSLObject) -> Peer:
        return self._listener.identify(tls.getpeercert(binary_form=True))


class TlsDoor:
    """Opens the connections of the HTTP API's port if it speaks TLS."""

    def __init__(
        self,
        listener: TlsTransport,
        serve: Callable[[], asyncio.Protocol],
        metrics: BrokerMetrics,
        peer_log: PeerLog,
        on_room: Callable[[], None],
    ) -> None:
        """Open no connections yet.

        `serve` makes the HTTP protocol of a connection after its handshake. `on_room` is called
        when a new handshake may begin again after there were too many.
        """
        self._terms = _Terms(listener)
        self._serve = serve
        self._metrics = metrics
        self._peer_log = peer_log
        self._loop = asyncio.get_running_loop()
        self.handshakes = HandshakePool(self._loop, on_room)
        self._strangers: UnprovedPeers[_Stranger] = UnprovedPeers(
            total_max=STRANGERS_MAX, per_address_max=STRANGERS_PER_IP_MAX, patience_s=STRANGER_S
        )
        self._sweep_timer: asyncio.TimerHandle | None = None

    def open(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        stranger = _Stranger(self)
        return TlsLayer(
            stranger,
            self._terms,
            self.handshakes,
            on_refused=self._on_refused,
            on_secure=partial(self._let_in, stranger),
        )

    def close(self) -> None:
        """End all handshakes."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for stranger in self._strangers.take_overdue(float("inf")):
            stranger.abort()
        self.handshakes.close()

    def arrived(self, stranger: _Stranger, address: str) -> None:
        """Count a new connection; if there are too many, close the oldest one."""
        leaving = self._strangers.add(stranger, address, self._loop.time())
        if leaving is not None:
            self._metrics.rest.connections_refused += 1
            leaving.abort()
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)

    def left(self, stranger: _Stranger) -> None:
        """Forget a connection that has closed."""
        self._strangers.discard(stranger)

    def _let_in(self, stranger: _Stranger, _: Peer) -> None:
        self._strangers.discard(stranger)
        transport = stranger.transport
        served = self._serve()
        transport.set_protocol(served)
        served.connection_made(transport)

    def _on_refused(self, reason: str) -> None:
        self._metrics.tls_handshakes_failed += 1
        self._peer_log.warn("no TLS handshake", "HTTP API: no TLS handshake: %s", reason)

    def _sweep(self) -> None:
        self._sweep_timer = None
        for stranger in self._strangers.take_overdue(self._loop.time()):
            stranger.abort()
            self._peer_log.warn(
                "slow handshake", "HTTP API: no TLS handshake within %d s", STRANGER_S
            )
        if len(self._strangers):
            self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)


class _Stranger(asyncio.Protocol):
    """The protocol of a connection until its handshake is done."""

    transport: asyncio.Transport

    def __init__(self, door: TlsDoor) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._door.arrived(self, peer_address(str(peer[0])) if peer else "")

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.left(self)

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()
