"""The certificate of a listener: whether it can stay, and whether it is usable. Pure.

A keystore is the private key and the certificate chain in one text, as in the file of
`ssl.keystore.location`.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from fairlead_operator.certificates.authority import (
    KeyPair,
    alternative_names,
    is_due,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime


def build_keystore(pair: KeyPair) -> bytes:
    """Return key and chain as one text."""
    return pair.key.rstrip() + b"\n" + pair.certificate


def may_stay(
    pair: KeyPair, hosts: Collection[str], now: datetime, *, authority: bytes, uri: str = ""
) -> bool:
    """Tell whether one of our own certificates is still good: for these names, and for some time.

    Surplus names do no harm until it is renewed.
    """
    if not pair.fits() or is_due(pair.certificate, now, authority=authority, uri=uri):
        return False
    return alternative_names(pair.certificate) >= set(map(_as_certified, hosts))


def keystore_problem(pair: KeyPair, now: datetime) -> str:
    """Return why a certificate of another issuer cannot be used; empty if it can."""
    if not pair.certificate or not pair.key:
        return "tls.crt or tls.key is missing"
    if not pair.fits():
        return "tls.key is not the key of the first certificate in tls.crt, or one is no PEM"
    leaf = x509.load_pem_x509_certificate(pair.certificate)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        return (
            f"the certificate holds from {leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} until "
            f"{leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}, not now"
        )
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ""
    if ExtendedKeyUsageOID.SERVER_AUTH not in usages:
        return "the certificate is not meant for servers (serverAuth)"
    return ""


def missing_names(certificate: bytes, hosts: Collection[str]) -> list[str]:
    """Return the names that clients use and a certificate does not have, in their order."""
    had, asked = alternative_names(certificate), set(map(_as_certified, hosts))
    return sorted(host for host in asked if host not in had and not _is_covered(host, had))


def _as_certified(host: str) -> str:
    """Return a host in the form of `alternative_names`: IPv6 addresses have many spellings."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _is_covered(host: str, names: Collection[str]) -> bool:
    """Tell whether a wildcard covers a name: it stands only for the first label."""
    _, dot, domain = host.partition(".")
    return bool(dot) and f"*.{domain}" in names
