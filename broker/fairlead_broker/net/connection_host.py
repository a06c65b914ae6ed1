"""What all connections of a broker share, as a connection and its transport see it.

`Server` is what stands behind it. It makes the connections, so they do not know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.authorization import Authorizer
    from fairlead_broker.broker import Broker
    from fairlead_broker.listener import Listener
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.net.connection_quotas import ConnectionQuotas
    from fairlead_broker.net.frame_memory import FrameMemory
    from fairlead_broker.net.peer_log import PeerLog
    from fairlead_broker.net.read_ahead import ReadAhead
    from fairlead_broker.net.ready_replies import ReadyReplies
    from fairlead_tls.handshake_pool import HandshakePool

HostedT_contra = TypeVar("HostedT_contra", contravariant=True)


class TransportHost(Protocol):
    """What the transports of all connections share."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def tick(self) -> int:
        """Seconds of the sweep that looks for what is overdue."""
        ...

    @property
    def metrics(self) -> BrokerMetrics: ...
    @property
    def receive_view(self) -> memoryview:
        """The receive buffer, whose contents last as long as one callback."""
        ...

    @property
    def memory(self) -> FrameMemory: ...
    @property
    def read_ahead(self) -> ReadAhead: ...
    def handshakes_on(self, listener: Listener) -> HandshakePool:
        """Return where the TLS handshakes of a listener compute."""
        ...


class ConnectionHost(TransportHost, Protocol[HostedT_contra]):
    """What connections share, and what they tell of themselves."""

    @property
    def broker(self) -> Broker: ...
    @property
    def authorizer(self) -> Authorizer | None:
        """None if clients may do everything."""
        ...

    @property
    def cluster_secret(self) -> bytes: ...
    @property
    def frame_size_max(self) -> int: ...
    @property
    def peer_log(self) -> PeerLog: ...
    @property
    def ready_replies(self) -> ReadyReplies: ...
    def quotas_for(self, connection: HostedT_contra) -> ConnectionQuotas | None:
        """Return the quotas of a connection's client; None if no quota can apply to it."""
        ...

    def run_later(
        self,
        connection: HostedT_contra,
        context: RequestContext,
        coroutine: Coroutine[Any, Any, Any],
    ) -> None:
        """Run the coroutine of a request, which outlives its connection if need be."""
        ...

    def on_let_in(self, connection: HostedT_contra) -> None:
        """Take note that a client has shown who it is."""
        ...

    def on_proved(self, connection: HostedT_contra) -> None:
        """Take note that a peer has proved that it is a broker."""
        ...

    def forget(self, connection: HostedT_contra) -> None:
        """Forget a connection that has closed."""
        ...
