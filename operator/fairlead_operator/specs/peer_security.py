"""What TLS between brokers, and with the controller, needs: settings and names. Pure.

Each broker has one certificate for both, whose URI names the broker and its cluster. All brokers of
a pool mount one Secret, which has each certificate under the broker's id.
"""

from typing import Final

from fairlead_operator.specs.names import TLS_FOLDER, TRUST_KEY
from fairlead_operator.specs.views import ClusterView
from fairlead_tls.peer_names import PeerName
from fairlead_tls.peer_settings import CONTROLLER_LISTENER, INTERNAL_LISTENER

PEERS_MAX: Final = 500
"""Brokers of a pool whose certificates fit into one Secret."""
PEER_LISTENERS: Final = (INTERNAL_LISTENER, CONTROLLER_LISTENER)
_PREFIX, _SUFFIX = "broker-", ".pem"
PEER_PROPERTIES: Final = {
    "ssl.allow.dn.changes": "true",
    "ssl.allow.san.changes": "true",
    # The controller uses nothing older, whatever client listeners are configured to use.
    "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.keystore.location": f"{TLS_FOLDER}/{_PREFIX}${{BROKER_ID}}{_SUFFIX}",
    "ssl.protocol": "TLSv1.3",
    "ssl.truststore.location": f"{TLS_FOLDER}/{TRUST_KEY}",
}
"""The settings of each of `PEER_LISTENERS`."""


def peer_key(broker_id: int) -> str:
    """Return the key of the brokers' Secret that has a broker's own certificate and key.

    No listener has the same key: their names have no hyphen.
    """
    return f"{_PREFIX}{broker_id}{_SUFFIX}"


def is_peer_key(key: str) -> bool:
    """Tell whether a key of the brokers' Secret has a broker's own certificate and key."""
    return key.startswith(_PREFIX) and key.endswith(_SUFFIX)


def peer_uri(cluster: ClusterView, broker_id: int | None) -> str:
    """Return the name of a broker in its certificate; None: that of the controller."""
    return str(PeerName(f"{cluster.namespace}/{cluster.name}", broker_id))
