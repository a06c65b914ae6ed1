"""The certificates of a broker: of its TLS listeners, and of it as a client of other peers.

They are read at the start, and followed while the broker serves (`followed_certificate`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fairlead_broker.net.tls_peers import identify_broker, identify_user
from fairlead_broker.net.tls_transport import TlsTransport
from fairlead_tls.followed_certificate import (
    POLL_S,
    FollowedCertificate,
    FollowedPeer,
    follow_files,
    follow_listener,
    follow_peer,
)
from fairlead_tls.peer_settings import CONTROLLER_LISTENER, INTERNAL_LISTENER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.security.listener_security import ListenerSecurity
    from fairlead_tls.certificates import Identity
    from fairlead_tls.peer_settings import PeerTlsSettings


class TlsListeners:
    """One transport for each listener with TLS."""

    def __init__(
        self,
        security: Mapping[str, ListenerSecurity],
        metrics: BrokerMetrics,
        *,
        peer_tls: PeerTlsSettings | None = None,
        controller_tls: PeerTlsSettings | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """Read all certificates; CertificateError says which cannot serve, and why."""
        self._metrics = metrics
        self._poll_s = poll_s
        self._followed: dict[str, FollowedCertificate[Identity] | FollowedPeer] = {}
        """By the name of their listener."""
        self._task: asyncio.Task[None] | None = None
        self.transports: dict[str, TlsTransport] = {}
        self.peer: FollowedPeer | None = None
        """The certificate that this broker shows to other brokers, in both directions."""
        self.controller: FollowedPeer | None = None
        """The certificate that it shows to controllers."""
        for name, each in security.items():
            if each.tls is not None:
                listener = follow_listener(name, each.tls)
                self.transports[name] = TlsTransport(listener, identify_user(each.mapping))
                self._followed[name] = listener
        if peer_tls is not None:
            self.peer = follow_peer(INTERNAL_LISTENER, peer_tls)
            self.transports[INTERNAL_LISTENER] = TlsTransport(self.peer, identify_broker(self.peer))
            self._followed[INTERNAL_LISTENER] = self.peer
        if controller_tls is not None:
            self.controller = follow_peer(CONTROLLER_LISTENER, controller_tls)
            self._followed[CONTROLLER_LISTENER] = self.controller
        for followed in self._followed.values():
            followed.on_refused = self._on_refused

    def start(self) -> None:
        """Follow the files from now on."""
        if self._followed:
            following = follow_files(tuple(self._followed.values()), poll_s=self._poll_s)
            self._task = asyncio.get_running_loop().create_task(following)

    async def stop(self) -> None:
        """Follow them no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def describe(self) -> dict[str, Any]:
        """Return what listeners show and trust now: SHA-256 of certificates, by listener."""
        return {name: each.current.describe() for name, each in self._followed.items()}

    def ends_s(self) -> dict[str, float]:
        """Return when the certificates end that are shown now: Unix times, by listener."""
        return {name: each.current.ends_s for name, each in self._followed.items()}

    def _on_refused(self) -> None:
        self._metrics.certificates_refused += 1
