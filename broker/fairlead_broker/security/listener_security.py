"""The security protocol of each listener, and how its clients log in, from the settings."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairlead_broker.security.principal_mapping import PrincipalMapping
from fairlead_broker.security.sasl.sasl_settings import SaslSettings, read_sasl_settings
from fairlead_model.broker import REST_ENDPOINT
from fairlead_model.configs.config_values import ConfigError
from fairlead_model.configs.security_configs import LISTENER_PREFIX
from fairlead_tls.listener_values import ListenerValues
from fairlead_tls.peer_settings import CONTROLLER_LISTENER
from fairlead_tls.protocol_map import PROTOCOL_MAP, SecurityProtocol, read_protocol_map
from fairlead_tls.tls_settings import TlsSettings, read_tls_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.listener import Listener
    from fairlead_model.configs.config_values import BrokerValues

REST_LISTENER_SETTING: Final = "fairlead.rest.listener"
_MAPPING_RULES: Final = "ssl.principal.mapping.rules"
_SECURED: Final = ("ssl.", "sasl.", LISTENER_PREFIX)


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security protocol of one listener, and its settings."""

    protocol: SecurityProtocol
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    mapping: PrincipalMapping | None = None
    """How certificates of clients become users; None if clients log in, or the port has no TLS."""

    @property
    def is_authenticating(self) -> bool:
        """Whether clients may or must authenticate."""
        return self.sasl is not None or (
            self.tls is not None and self.tls.verify_mode is not ssl.CERT_NONE
        )


PLAINTEXT: Final = ListenerSecurity(SecurityProtocol.PLAINTEXT)


def read_listener_security(
    values: BrokerValues, listeners: Iterable[Listener]
) -> dict[str, ListenerSecurity]:
    """Return the security settings of listeners by name; ConfigError if a setting is wrong."""
    listeners = tuple(listeners)
    protocols = read_protocol_map(values)
    # A broker has no listener CONTROLLER, but is a client of it; REST is the HTTP API's listener.
    known = {CONTROLLER_LISTENER.lower(), *(each.name.lower() for each in listeners)}
    if values.value(REST_LISTENER_SETTING) is not None:
        known.add(REST_ENDPOINT.lower())
    for name in values.static:
        if name.startswith(LISTENER_PREFIX):
            listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0]
            if listener not in known:
                raise ConfigError(name, f"{name}: there is no listener {listener.upper()!r}")
    return {each.name: _read_one(values, each, protocols) for each in listeners}


def _read_one(
    values: BrokerValues, listener: Listener, protocols: dict[str, SecurityProtocol]
) -> ListenerSecurity:
    protocol = protocols.get(listener.name)
    if listener.is_internal:
        # The internal listener has the TLS settings of peers: `Settings.peer_tls`.
        return PLAINTEXT
    if protocol is None:
        protocol = _by_name(values, listener.name)
    own = ListenerValues(values, listener.name)
    return ListenerSecurity(
        protocol,
        read_tls_settings(own, is_sasl=protocol.is_sasl) if protocol.is_tls else None,
        read_sasl_settings(own, is_tls=protocol.is_tls) if protocol.is_sasl else None,
        read_mapping(own) if protocol is SecurityProtocol.SSL else None,
    )


def read_mapping(values: ListenerValues) -> PrincipalMapping:
    """Return how a listener maps certificates to users; ConfigError."""
    rules = values.text(_MAPPING_RULES) or "DEFAULT"
    return PrincipalMapping.parse(values.name_of(_MAPPING_RULES), rules)


def _by_name(values: BrokerValues, name: str) -> SecurityProtocol:
    """Return the protocol of a listener without an entry in the map.

    If its name is not a protocol, it is PLAINTEXT only if no security settings are set: a listener
    that is meant to be encrypted must not become plaintext because an entry was forgotten.
    """
    found = SecurityProtocol.__members__.get(name)
    if found is not None:
        return found
    if PROTOCOL_MAP in values.static or any(each.startswith(_SECURED) for each in values.static):
        raise ConfigError(
            PROTOCOL_MAP, f"{PROTOCOL_MAP} must say what listener {name} speaks, as {name}:SASL_SSL"
        )
    return SecurityProtocol.PLAINTEXT
