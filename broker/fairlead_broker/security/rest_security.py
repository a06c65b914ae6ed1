"""The protocol of the HTTP API's port, and how its clients authenticate, from the settings.

The port is a listener with the name REST: `ssl.*` and `sasl.*` apply to it, too, and
`listener.name.rest.…` overrides them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.security.listener_security import (
    REST_LISTENER_SETTING,
    ListenerSecurity,
    read_mapping,
)
from fairlead_broker.security.sasl.sasl_settings import build_sasl_settings
from fairlead_model.broker import REST_ENDPOINT
from fairlead_model.configs.config_key import ConfigError
from fairlead_tls.listener_values import ListenerValues
from fairlead_tls.protocol_map import SecurityProtocol
from fairlead_tls.tls_settings import read_tls_settings

if TYPE_CHECKING:
    from fairlead_model.configs.config_values import BrokerValues

METHODS: Final = "fairlead.rest.authentication"
OVER_PLAINTEXT: Final = "fairlead.rest.authentication.over.plaintext"
MECHANISMS: Final = {"BASIC": "PLAIN", "BEARER": "OAUTHBEARER"}
"""The SASL mechanism that verifies the same credential as an HTTP method, by method."""
_TLS_SCHEME: Final = "https://"
_PLAIN_SCHEME: Final = "http://"
_PREFIX: Final = "listener.name.rest.ssl."


def split_rest_scheme(text: str) -> tuple[bool, str]:
    """Return whether the HTTP API's listener speaks TLS, and its address without the scheme."""
    is_tls = text.lower().startswith(_TLS_SCHEME)
    scheme, separator, address = text.partition("://")
    if not separator:
        return False, text
    if not is_tls and f"{scheme.lower()}://" != _PLAIN_SCHEME:
        raise ConfigError(
            REST_LISTENER_SETTING, f"{REST_LISTENER_SETTING}={text}: write http:// or https://"
        )
    return is_tls, address


def read_rest_security(values: BrokerValues) -> dict[str, ListenerSecurity]:
    """Return the HTTP API's security settings by its listener's name; empty if it is off.

    ConfigError if a setting is wrong or missing.
    """
    text = values.value(REST_LISTENER_SETTING)
    methods = values.value(METHODS)
    methods = methods if isinstance(methods, tuple) else ()
    if text is None:
        if methods:
            raise ConfigError(METHODS, f"{METHODS}: there is no {REST_LISTENER_SETTING}")
        return {}
    is_tls, _ = split_rest_scheme(str(text))
    if methods and not is_tls and values.value(OVER_PLAINTEXT) is not True:
        raise ConfigError(
            METHODS,
            f"{METHODS}: {methods[0]} shows everybody on the way what lets the user in; write "
            f"{REST_LISTENER_SETTING}=https://…, or set {OVER_PLAINTEXT}=true where only a proxy "
            "that speaks TLS reaches the port",
        )
    own = ListenerValues(values, REST_ENDPOINT)
    own_tls = next((each for each in values.static if each.startswith(_PREFIX)), None)
    if own_tls is not None and not is_tls:
        # A port that is meant to be encrypted must not become plaintext by an omission.
        raise ConfigError(own_tls, f"{own_tls}: {REST_LISTENER_SETTING} must begin with https://")
    sasl = None
    if methods:
        sasl = build_sasl_settings(own, tuple(MECHANISMS[each] for each in methods))
    found = ListenerSecurity(
        _protocol(is_tls=is_tls, is_sasl=sasl is not None),
        read_tls_settings(own, is_sasl=sasl is not None) if is_tls else None,
        sasl,
        read_mapping(own) if is_tls else None,
    )
    return {REST_ENDPOINT: found}


def _protocol(*, is_tls: bool, is_sasl: bool) -> SecurityProtocol:
    if is_sasl:
        return SecurityProtocol.SASL_SSL if is_tls else SecurityProtocol.SASL_PLAINTEXT
    return SecurityProtocol.SSL if is_tls else SecurityProtocol.PLAINTEXT
