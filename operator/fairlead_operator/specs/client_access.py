"""Which listener of a LogCluster a user uses, and whether the HTTP API accepts the user. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.resources.user import LoginType
from fairlead_operator.specs.names import (
    REST_PORT,
    bootstrap_service_name,
    listener_service_name,
)

INSIDE: Final = "Internal"
MOUNT_FOLDER: Final = "/etc/fairlead/user"
"""Where the Secret of a User is mounted: its librdkafka.config and curl.config can only name
certificates by files."""
CONFIG_KEY: Final = "librdkafka.config"
"""The settings for librdkafka in that Secret."""
CURL_KEY: Final = "curl.config"
"""The settings for `curl -K` in that Secret."""


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """The bootstrap address of a client, and its protocol."""

    bootstrap: str
    protocol: str
    """Kafka's name: SSL, SASL_SSL, SASL_PLAINTEXT."""
    is_of_own_authority: bool = False
    """Whether the cluster's own authority has issued the certificates that brokers show there."""


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """The address of the HTTP API inside Kubernetes; it uses TLS."""

    url: str
    is_of_own_authority: bool = False
    """Whether the cluster's own authority has issued the certificates that brokers show there."""


@dataclass(frozen=True, slots=True)
class UserAccess:
    """All ways that accept a user's login; None for each that does not."""

    kafka: ClientAccess | None
    http: HttpAccess | None = None

    @property
    def takes_login(self) -> bool:
        """Whether any way accepts it."""
        return self.kafka is not None or self.http is not None

    @property
    def is_of_own_authority(self) -> bool:
        """Whether a client has to trust the cluster's own authority for any way."""
        ways = (self.kafka, self.http)
        return any(way is not None and way.is_of_own_authority for way in ways)


def find_user_access(cluster: Mapping[str, Any], login: LoginType) -> UserAccess:
    """Return the ways into a LogCluster that accept a login."""
    return UserAccess(find_access(cluster, login), _find_http(cluster, login))


def _find_http(cluster: Mapping[str, Any], login: LoginType) -> HttpAccess | None:
    rest = (cluster.get("spec") or {}).get("rest") or {}
    if not rest.get("enabled") or (rest.get("authentication") or {}).get("type") != login:
        return None
    metadata = cluster["metadata"]
    host = f"{bootstrap_service_name(metadata['name'])}.{metadata['namespace']}.svc"
    return HttpAccess(f"https://{host}:{REST_PORT}", _is_own(rest.get("tls") or {}))


def find_access(cluster: Mapping[str, Any], login: LoginType) -> ClientAccess | None:
    """Return the first listener that accepts a login; those inside Kubernetes come first."""
    listeners = (cluster.get("spec") or {}).get("listeners") or ()
    takers = [each for each in listeners if (each.get("authentication") or {}).get("type") == login]
    takers.sort(key=lambda listener: listener.get("type") != INSIDE)
    return _access(cluster["metadata"], takers[0], login) if takers else None


def _access(
    metadata: Mapping[str, Any], listener: Mapping[str, Any], login: LoginType
) -> ClientAccess:
    name = metadata["name"]
    is_inside = listener.get("type") == INSIDE
    service = (
        bootstrap_service_name(name)
        if is_inside
        else listener_service_name(name, listener["name"], None)
    )
    tls = listener.get("tls") or {}
    is_tls = "tls" in listener and tls.get("enabled", True)
    transport = "SSL" if is_tls else "PLAINTEXT"
    return ClientAccess(
        f"{service}.{metadata['namespace']}.svc:{listener['port']}",
        transport if login == "tls" else f"SASL_{transport}",
        is_tls and _is_own(tls),
    )


def _is_own(tls: Mapping[str, Any]) -> bool:
    return not (tls.get("certificate") or tls.get("issuerRef"))
