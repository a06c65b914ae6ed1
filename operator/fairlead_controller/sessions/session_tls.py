"""TLS of the sessions' port: its certificate, and the peer that a certificate names."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fairlead_tls.peer_check import check_caller
from fairlead_tls.peer_names import PeerName
from fairlead_tls.tls_layer import PEER, Terms

if TYPE_CHECKING:
    import ssl

    from aiohttp import web

    from fairlead_tls.followed_certificate import FollowedPeer

SessionTls: TypeAlias = Terms[PeerName]
"""The TLS interface that `SessionDoor` uses."""


class OwnSessionTls:
    """TLS of a controller with one cluster, which its certificate names."""

    allows_plaintext = False

    def __init__(self, own: FollowedPeer) -> None:
        self._own = own

    def open_context(self) -> ssl.SSLContext:
        """Return the context with the present certificate."""
        return self._own.current.context

    def identify(self, tls: ssl.SSLObject) -> PeerName:
        """Return the peer that the shown certificate names; TlsRefusedError if it is refused."""
        return check_caller(tls.getpeercert(binary_form=True), self._own.current.name.cluster)


def peer_of(request: web.BaseRequest) -> PeerName | None:
    """Return the peer that a request's certificate names; None if it came without TLS."""
    transport = request.transport
    name = None if transport is None else transport.get_extra_info(PEER)
    return name if isinstance(name, PeerName) else None
