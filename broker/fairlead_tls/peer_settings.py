"""The TLS settings of connections between brokers, and between broker and controller.

Both have a listener name in the settings: INTERNAL is the brokers' listener. CONTROLLER is the
controller's, and brokers are its clients. Both sides of these connections have a certificate.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.security_configs import LISTENER_PREFIX
from fairlead_tls.listener_values import ListenerValues
from fairlead_tls.protocol_map import PROTOCOL_MAP, SecurityProtocol, read_protocol_map
from fairlead_tls.tls_settings import CLIENT_AUTH, TlsSettings, read_tls_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_model.configs.config_values import BrokerValues

INTERNAL_LISTENER: Final = "INTERNAL"
CONTROLLER_LISTENER: Final = "CONTROLLER"
SESSIONS: Final = "fairlead.controller.sessions"
TLS_SCHEME: Final = "wss://"
_SPOKEN: Final = (SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL)


@dataclass(frozen=True, slots=True)
class PeerTlsSettings:
    """TLS of one listener for peers, as one process uses it."""

    tls: TlsSettings
    broker_id: int | None
    """The broker id in the certificate of this process; None if it is a controller."""


def read_peer_tls(
    values: BrokerValues, listener: str, *, broker_id: int | None
) -> PeerTlsSettings | None:
    """Return the TLS settings of a peer listener; None if it has no TLS. ConfigError."""
    own = ListenerValues(values, listener)
    protocol = read_protocol_map(values).get(listener, SecurityProtocol.PLAINTEXT)
    if protocol not in _SPOKEN:
        raise ConfigError(
            PROTOCOL_MAP,
            f"{PROTOCOL_MAP}: {listener} is for brokers and controllers, which prove that they "
            f"know the cluster's secret; write {listener}:SSL for TLS, or leave it out",
        )
    if protocol is SecurityProtocol.PLAINTEXT:
        # The operator of this process meant to encrypt; an omission must not turn that off.
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        if name := next((each for each in values.static if each.startswith(prefix)), None):
            raise ConfigError(name, f"{name}: {PROTOCOL_MAP} must say {listener}:SSL, too")
        return None
    if own.own_text(CLIENT_AUTH) not in (None, "required"):
        name = own.name_of(CLIENT_AUTH)
        raise ConfigError(name, f"{name}: peers always show certificates; leave it out")
    settings = read_tls_settings(own, is_sasl=True)
    if settings.trust is None:
        name = f"{LISTENER_PREFIX}{listener.lower()}.ssl.truststore.location"
        raise ConfigError(name, f"listener {listener} speaks TLS: {name} must name whom it trusts")
    return PeerTlsSettings(replace(settings, verify_mode=ssl.CERT_REQUIRED), broker_id)


def check_session_urls(urls: Iterable[str], tls: PeerTlsSettings | None) -> None:
    """Check that addresses of controllers agree with CONTROLLER in the map; ConfigError."""
    for url in urls:
        is_tls = url.lower().startswith(TLS_SCHEME)
        if is_tls and tls is None:
            raise ConfigError(
                SESSIONS,
                f"{SESSIONS}={url}: {PROTOCOL_MAP} must name {CONTROLLER_LISTENER}:SSL, too",
            )
        if not is_tls and tls is not None:
            raise ConfigError(
                SESSIONS,
                f"{SESSIONS}={url}: {PROTOCOL_MAP} says {CONTROLLER_LISTENER}:SSL; write "
                f"{TLS_SCHEME}HOST:PORT",
            )
