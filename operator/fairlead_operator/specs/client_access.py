"""At which listener of a LogCluster a user comes in. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.resources.user import LoginType
from fairlead_operator.specs.names import bootstrap_service_name, listener_service_name

INSIDE: Final = "Internal"
MOUNT_FOLDER: Final = "/etc/fairlead/user"
"""Where the Secret of a User is mounted: its librdkafka.config can name certificates by files
only."""
CONFIG_KEY: Final = "librdkafka.config"
"""The settings for librdkafka in that Secret."""


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """Where a client begins, and what it speaks there."""

    bootstrap: str
    protocol: str
    """Kafka's name: SSL, SASL_SSL, SASL_PLAINTEXT."""
    is_of_own_authority: bool = False
    """Whether the cluster's own authority has issued what brokers show there."""

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")


def find_access(cluster: Mapping[str, Any], login: LoginType) -> ClientAccess | None:
    """Return the first listener that takes a login; those inside Kubernetes come first."""
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
        is_tls and not (tls.get("certificate") or tls.get("issuerRef")),
    )
