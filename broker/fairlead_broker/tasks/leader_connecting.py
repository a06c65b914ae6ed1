"""Connecting to a broker that leads something: in clear or over TLS, and proved on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.tasks.leader_connection import LeaderConnection

if TYPE_CHECKING:
    from fairlead_model.cluster import ClusterImage
    from fairlead_tls.followed_certificate import FollowedPeer

CONNECT_TIMEOUT_S: Final = 2.0


async def connect_to_leader(
    image: ClusterImage,
    leader_id: int,
    secret: bytes,
    *,
    client_id: str,
    certificate: FollowedPeer | None = None,
) -> LeaderConnection:
    """Connect to a broker's internal listener; on return both sides have proved themselves.

    Over TLS if there is a `certificate`. PeerProofError, RemoteProtocolError, OSError or
    TimeoutError.
    """
    registration = image.brokers.get(leader_id)
    endpoint = None
    if registration is not None:
        endpoint = next((each for each in registration.endpoints if each.is_internal), None)
    if endpoint is None:
        raise ConnectionRefusedError("it has no internal listener")
    if certificate is None:
        connection = await LeaderConnection.open(
            endpoint.host, endpoint.port, client_id=client_id, timeout_s=CONNECT_TIMEOUT_S
        )
    else:
        # Only where brokers encrypt: the others need not load TLS to start.
        from fairlead_broker.tasks.tls_leader_connection import open_tls

        connection = await open_tls(
            endpoint.host,
            endpoint.port,
            leader_id,
            certificate.current,
            client_id=client_id,
            timeout_s=CONNECT_TIMEOUT_S,
        )
    try:
        await connection.prove(secret)
    except BaseException:
        connection.close()
        raise
    return connection
