"""How the operator itself, and drills that it starts, reach the brokers of a cluster as clients.

If a cluster has any TLS or logins, they connect to the operator's listener with a certificate of
the cluster's authority, so they need no users.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import SECRET
from fairlead_operator.certificates.authority import KeyPair, issue_client
from fairlead_operator.certificates.rotation import AuthorityError, read_authorities
from fairlead_operator.resources import LogClusterSpec, ManifestError
from fairlead_operator.resources.listener import DEFAULT_LISTENER
from fairlead_operator.specs.listener_security import own_client_port, own_user
from fairlead_operator.specs.names import authority_secret_name, bootstrap_service_name

LIFE: Final = timedelta(days=30)
_DECLARING: Final = frozenset({"authorization", "listeners"})
"""Fields of a LogCluster without which it has the one listener of old."""


class AccessError(Exception):
    """There is no way in now; the text says why."""


@dataclass(frozen=True, slots=True)
class OwnAccess:
    """How a user of our own reaches a cluster; the rest only where that is secured."""

    bootstrap: str
    user: str = ""
    pair: KeyPair | None = None
    trusted: bytes = field(default=b"", repr=False)

    def client_settings(self) -> dict[str, str]:
        """Return librdkafka's settings, with certificates and key as texts."""
        settings = {"bootstrap.servers": self.bootstrap}
        if self.pair is not None:
            settings |= {
                "security.protocol": "ssl",
                "ssl.ca.pem": self.trusted.decode(),
                "ssl.certificate.pem": self.pair.certificate.decode(),
                "ssl.key.pem": self.pair.key.decode(),
            }
        return settings


async def find_access(
    client: KubeClient, namespace: str, log_cluster: Mapping[str, Any], user: str
) -> OwnAccess:
    """Return how a user of our own reaches a cluster as it is now; AccessError if it cannot."""
    name = log_cluster["metadata"]["name"]
    service = f"{bootstrap_service_name(name)}.{namespace}.svc"
    if not _DECLARING & (log_cluster.get("spec") or {}).keys():
        return OwnAccess(f"{service}:{DEFAULT_LISTENER.port}")
    try:
        spec = LogClusterSpec.from_manifest(log_cluster)
    except ManifestError as error:
        raise AccessError(f"LogCluster {name}: {error}") from error
    bootstrap = f"{service}:{own_client_port(spec)}"
    if not spec.is_secured:
        return OwnAccess(bootstrap)
    principal = own_user(log_cluster["metadata"]["uid"], user)
    try:
        secret = await client.get(SECRET, namespace, authority_secret_name(name))
    except ApiError as error:
        if error.is_not_found:
            raise AccessError(f"LogCluster {name} has no authority yet") from error
        raise
    return _issued(bootstrap, principal, secret)


def _issued(bootstrap: str, principal: str, secret: Mapping[str, Any]) -> OwnAccess:
    try:
        authorities = read_authorities(secret.get("data") or {})
    except AuthorityError as error:
        raise AccessError(f"the Secret with the authority: {error}") from error
    pair = issue_client(authorities.current, principal, datetime.now(UTC), life=LIFE)
    return OwnAccess(bootstrap, principal, pair, authorities.trusted)
