"""The SASL settings of one listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.security_configs import SASL_MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_tls.listener_values import ListenerValues

_ENABLED: Final = "sasl.enabled.mechanisms"
_ONLY_OVER_TLS: Final = frozenset({"PLAIN", "OAUTHBEARER"})
"""With these an eavesdropper would get the password or the token from the first message."""
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Which tokens are valid."""

    jwks_url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    clock_skew_s: int
    issuer: str
    audiences: tuple[str, ...]
    sub_claim: str


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """SASL of one listener."""

    mechanisms: tuple[str, ...]
    receive_size_max: int
    reauth_ms: Mapping[str, int]
    """By mechanism: how long a login is valid; 0 for no limit."""
    oauth: OAuthSettings | None


def read_sasl_settings(values: ListenerValues, *, is_tls: bool) -> SaslSettings:
    """Return the SASL settings of a listener; ConfigError if one is wrong or missing."""
    name = values.name_of(_ENABLED)
    mechanisms = values.texts(_ENABLED)
    if not mechanisms:
        raise ConfigError(name, f"listener {values.listener} speaks SASL: set {_ENABLED}")
    for mechanism in mechanisms:
        if mechanism not in SASL_MECHANISMS:
            allowed = ", ".join(SASL_MECHANISMS)
            raise ConfigError(name, f"{name}: {mechanism!r} is none of {allowed}")
        if mechanism in _ONLY_OVER_TLS and not is_tls:
            raise ConfigError(
                name,
                f"{name}: {mechanism} shows everybody on the way what logs the user in; "
                f"listener {values.listener} must speak SASL_SSL for it",
            )
    return build_sasl_settings(values, mechanisms)


def build_sasl_settings(values: ListenerValues, mechanisms: tuple[str, ...]) -> SaslSettings:
    """Return the settings of these mechanisms; ConfigError."""
    reauth = "connections.max.reauth.ms"
    return SaslSettings(
        mechanisms=mechanisms,
        receive_size_max=values.number("sasl.server.max.receive.size"),
        reauth_ms={each: values.number_of_mechanism(reauth, each) for each in mechanisms},
        oauth=_read_oauth(values) if "OAUTHBEARER" in mechanisms else None,
    )


def _read_oauth(values: ListenerValues) -> OAuthSettings:
    url = _required(values, _URL)
    if not url.startswith(("https://", "file:///")):
        raise ConfigError(_URL, f"{_URL}={url}: only https:// and file:/// can be trusted")
    audiences = values.texts("sasl.oauthbearer.expected.audience")
    if not audiences:
        _required(values, "sasl.oauthbearer.expected.audience")
    return OAuthSettings(
        jwks_url=url,
        refresh_ms=values.number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        retry_backoff_ms=values.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        retry_backoff_max_ms=values.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        clock_skew_s=values.number("sasl.oauthbearer.clock.skew.seconds"),
        issuer=_required(values, "sasl.oauthbearer.expected.issuer"),
        audiences=audiences,
        sub_claim=_required(values, "sasl.oauthbearer.sub.claim.name"),
    )


def _required(values: ListenerValues, name: str) -> str:
    text = values.text(name)
    if not text:
        raise ConfigError(name, f"listener {values.listener} takes tokens: set {name}")
    return text
