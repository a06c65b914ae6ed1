"""Certificates of brokers and controllers for tests, and the settings that name them."""

from pathlib import Path
from typing import Any

from secure_listener import Certificates

from fairlead_model.configs.config_values import BrokerValues
from fairlead_tls.followed_certificate import FollowedPeer, follow_peer
from fairlead_tls.peer_names import PeerName
from fairlead_tls.peer_settings import read_peer_tls
from fairlead_tls.protocol_map import PROTOCOL_MAP

CLUSTER = "test"


class PeerCertificates(Certificates):
    """An authority of one cluster's peers."""

    def of(self, broker_id: int | None, **options: Any) -> Path:
        """Issue the certificate of a broker, or of a controller; give the file."""
        file = "controller" if broker_id is None else f"broker-{broker_id}"
        options.setdefault("uris", [str(PeerName(CLUSTER, broker_id))])
        return self.issue(file, **options)

    def settings(self, listener: str, certificate: Path) -> dict[str, str]:
        """Return the settings of a listener of peers for the owner of a certificate."""
        own = f"listener.name.{listener.lower()}."
        return {
            f"{own}ssl.keystore.location": str(certificate),
            f"{own}ssl.truststore.location": str(self.ca),
        }

    def follow(self, listener: str, broker_id: int | None, certificate: Path) -> FollowedPeer:
        """Return a certificate as the process of its owner has it."""
        settings = {PROTOCOL_MAP: f"{listener}:SSL", **self.settings(listener, certificate)}
        tls = read_peer_tls(BrokerValues(static=settings), listener, broker_id=broker_id)
        assert tls is not None
        return follow_peer(listener, tls)
