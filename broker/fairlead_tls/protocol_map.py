"""The protocols of listeners: `listener.security.protocol.map`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from fairlead_model.configs.config_key import ConfigError

if TYPE_CHECKING:
    from fairlead_model.configs.config_values import BrokerValues

PROTOCOL_MAP: Final = "listener.security.protocol.map"


class SecurityProtocol(Enum):
    """Security protocols of listeners, with Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


def read_protocol_map(values: BrokerValues) -> dict[str, SecurityProtocol]:
    """Return the protocols of the listeners that the map names; ConfigError."""
    entries = values.value(PROTOCOL_MAP)
    protocols: dict[str, SecurityProtocol] = {}
    for entry in entries if isinstance(entries, tuple) else ():
        name, _, text = entry.partition(":")
        name, text = name.strip().upper(), text.strip().upper()
        protocol = SecurityProtocol.__members__.get(text)
        if protocol is None or not name:
            allowed = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(
                PROTOCOL_MAP,
                f"{PROTOCOL_MAP}: {entry!r} is not NAME:PROTOCOL with one of {allowed}",
            )
        if name in protocols:
            raise ConfigError(PROTOCOL_MAP, f"{PROTOCOL_MAP} names {name} twice")
        protocols[name] = protocol
    return protocols
