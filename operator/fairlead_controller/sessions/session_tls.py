"""TLS of the sessions' port: which certificate a connection gets, and who its peer is by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from fairlead_tls.peer_check import check_caller
from fairlead_tls.peer_names import PeerName

if TYPE_CHECKING:
    import ssl

    from aiohttp import web

    from fairlead_tls.followed_certificate import FollowedPeer

PEER_NAME: Final = "fairlead_peer_name"
"""Extra information of a transport."""


class SessionTls(Protocol):
    """What the door asks."""

    allows_plaintext: bool
    """Whether connections without TLS get past the door, too; others judge them then."""

    def open_context(self) -> ssl.SSLContext:
        """Return the context of a new connection."""
        ...

    def identify(self, tls: ssl.SSLObject) -> PeerName:
        """Return who has shown the certificate, which is verified; TlsRefusedError.

        For a thread.
        """
        ...


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
    name = None if transport is None else transport.get_extra_info(PEER_NAME)
    return name if isinstance(name, PeerName) else None
