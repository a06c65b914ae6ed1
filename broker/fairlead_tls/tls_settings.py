"""The TLS settings of one listener.

Suites of TLS 1.2 have other names in OpenSSL. Suites of TLS 1.3 cannot be selected in Python before
3.15: to name some of them, or none, only decides whether the listener accepts this version.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairlead_model.configs.config_key import ConfigError

if TYPE_CHECKING:
    from fairlead_tls.listener_values import ListenerValues

CLIENT_AUTH: Final = "ssl.client.auth"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_NEWER_SUITES: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
    }
)
_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
}


@dataclass(frozen=True, slots=True)
class PemSource:
    """The place of a PEM text: a file, or the settings themselves."""

    setting: str
    path: str | None = None
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of one listener."""

    key: PemSource
    chain: PemSource
    """The same source as `key` if it is a file; else a text in another setting."""
    trust: PemSource | None
    key_password: str | None = field(repr=False)
    verify_mode: ssl.VerifyMode
    oldest: ssl.TLSVersion
    newest: ssl.TLSVersion
    ciphers: str | None
    """In OpenSSL's notation; None for OpenSSL's choice."""
    allow_dn_changes: bool
    allow_san_changes: bool


def read_tls_settings(values: ListenerValues, *, is_sasl: bool) -> TlsSettings:
    """Return the TLS settings of a listener; ConfigError says what is wrong or missing."""
    key, chain = _key_sources(values)
    trust = _trust_source(values)
    # KIP-684: with SASL, the common setting would ask clients for certificates without a use.
    auth = values.own_text(CLIENT_AUTH) if is_sasl else values.text(CLIENT_AUTH)
    verify_mode = _VERIFY_MODES[auth or "none"]
    if verify_mode is not ssl.CERT_NONE and trust is None:
        name = values.name_of(CLIENT_AUTH)
        raise ConfigError(
            name, f"{name}={auth}: ssl.truststore.location must say whose certificates are good"
        )
    oldest, newest, ciphers = _protocols(values)
    return TlsSettings(
        key=key,
        chain=chain,
        trust=trust,
        key_password=values.text("ssl.key.password"),
        verify_mode=verify_mode,
        oldest=oldest,
        newest=newest,
        ciphers=ciphers,
        allow_dn_changes=values.flag("ssl.allow.dn.changes"),
        allow_san_changes=values.flag("ssl.allow.san.changes"),
    )


def _key_sources(values: ListenerValues) -> tuple[PemSource, PemSource]:
    location, key_name = "ssl.keystore.location", "ssl.keystore.key"
    chain_name = "ssl.keystore.certificate.chain"
    path, key, chain = values.text(location), values.text(key_name), values.text(chain_name)
    if path and (key or chain):
        raise ConfigError(location, f"{location} and {key_name}: only one of both may be set")
    if path:
        source = PemSource(values.name_of(location), path=path)
        return source, source
    if not key or not chain:
        missing = key_name if chain else chain_name if key else location
        raise ConfigError(missing, f"listener {values.listener} speaks TLS: set {missing}")
    return (
        PemSource(values.name_of(key_name), text=key),
        PemSource(values.name_of(chain_name), text=chain),
    )


def _trust_source(values: ListenerValues) -> PemSource | None:
    location, inline = "ssl.truststore.location", "ssl.truststore.certificates"
    path, text = values.text(location), values.text(inline)
    if path and text:
        raise ConfigError(location, f"{location} and {inline}: only one of both may be set")
    if path:
        return PemSource(values.name_of(location), path=path)
    return PemSource(values.name_of(inline), text=text) if text else None


def _protocols(values: ListenerValues) -> tuple[ssl.TLSVersion, ssl.TLSVersion, str | None]:
    names = values.texts("ssl.enabled.protocols")
    newest = values.text("ssl.protocol") or "TLSv1.3"
    enabled = [_VERSIONS[name] for name in names if _VERSIONS[name] <= _VERSIONS[newest]]
    suites = values.texts("ssl.cipher.suites")
    name = values.name_of("ssl.cipher.suites")
    for suite in suites:
        if suite not in _SUITES and suite not in _NEWER_SUITES:
            raise ConfigError(name, f"{name}: {suite!r} is no suite that is served")
    older = ":".join(_SUITES[suite] for suite in suites if suite in _SUITES)
    if suites:
        spoken = set(enabled)
        if not older:
            spoken.discard(ssl.TLSVersion.TLSv1_2)
        if not _NEWER_SUITES.intersection(suites):
            spoken.discard(ssl.TLSVersion.TLSv1_3)
        enabled = sorted(spoken)
    if not enabled:
        raise ConfigError(
            name, f"listener {values.listener}: no version of TLS is left to be spoken"
        )
    return min(enabled), max(enabled), older or None
