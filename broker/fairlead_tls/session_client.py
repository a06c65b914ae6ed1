"""The side of a WebSocket session over TLS that connects: to a controller of the same cluster."""

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
    """Return how to connect and show this certificate; without one, in clear."""
    if own is None:
        return {"ssl": True, "server_hostname": None}
    return {"ssl": own.client_context, "server_hostname": server_name(own.name.cluster)}


def check_controller(tls: ssl.SSLObject | None, own: PeerIdentity) -> None:
    """See to it that a controller of this cluster answers, before anything it says counts.

    TlsRefusedError.
    """
    # Here, because a broker without TLS does without what reads certificates.
    from fairlead_tls.peer_check import check_called

    if tls is None:
        raise TlsRefusedError("the connection has closed")
    check_called(tls.getpeercert(binary_form=True), PeerName(own.name.cluster))
