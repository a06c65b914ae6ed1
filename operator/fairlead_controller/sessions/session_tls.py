"""TLS of the sessions' port: which certificate a connection gets, and who its peer is by it."""

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
"""What the door asks."""


class OwnSessionTls:
    """Of a controller with one cluster, whose certificate says which."""

    allows_plaintext = False

    def __init__(self, own: FollowedPeer) -> None:
        self._own = own

    def open_context(self) -> ssl.SSLContext:
        """Return the context of the certificate of this moment."""
        return self._own.current.context

    def identify(self, tls: ssl.SSLObject) -> PeerName:
        """Return who has shown the certificate; TlsRefusedError."""
        return check_caller(tls.getpeercert(binary_form=True), self._own.current.name.cluster)


def peer_of(request: web.BaseRequest) -> PeerName | None:
    """Return who sends a request, by its certificate; None if it came without TLS."""
    transport = request.transport
    name = None if transport is None else transport.get_extra_info(PEER)
    return name if isinstance(name, PeerName) else None
