"""The client side of a WebSocket session over TLS: to a controller of the same cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.peer_names import PeerName, server_name

if TYPE_CHECKING:
    import ssl

    from fairlead_tls.certificates import PeerIdentity


class TlsOptions(TypedDict):
    """The arguments of aiohttp's `ws_connect` that TLS needs."""

    ssl: bool | ssl.SSLContext
    server_hostname: str | None


def tls_options(own: PeerIdentity | None) -> TlsOptions:
    """Return the options to connect with this certificate; without one, the defaults."""
    if own is None:
        return {"ssl": True, "server_hostname": None}
    return {"ssl": own.client_context, "server_hostname": server_name(own.name.cluster)}


def check_controller(tls: ssl.SSLObject | None, own: PeerIdentity) -> None:
    """Check that the server is a controller of this cluster, before any of its messages is used.

    TlsRefusedError if it is not.
    """
    # Imported here, because a broker without TLS does not need to read certificates.
    from fairlead_tls.peer_check import check_called

    if tls is None:
        raise TlsRefusedError("the connection has closed")
    check_called(tls.getpeercert(binary_form=True), PeerName(own.name.cluster))
