"""A certificate authority of Fairlead's own, for clusters on Kubernetes and on one machine.

The strictest clients accept its certificates (Python's VERIFY_X509_STRICT): they have key
identifiers, critical basic constraints and key usages. Keys are P-256. Validity begins five minutes
ago, so that clients with a slow clock accept them, and no certificate outlives its authority.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

AUTHORITY_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=397)
"""The longest life of server certificates that Apple's and Google's clients accept."""
_BACKDATED: Final = timedelta(minutes=5)
_SHARE_OF_LIFE: Final = 2 / 3
_JITTER: Final = 0.05
"""Share of the life by which the renewals of certificates from the same time are spread."""
_JITTER_STEPS: Final = 1024


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key (PKCS#8), as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    def fits(self) -> bool:
        """Tell whether both can be read, and the key belongs to the certificate."""
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate)
            key = load_pem_private_key(self.key, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            return False
        return certificate.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)

    def may_issue(self) -> bool:
        """Tell whether `issue` can sign with it; key and certificate have to fit."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        try:
            certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        except (ValueError, x509.ExtensionNotFound):
            return False
        return isinstance(load_pem_private_key(self.key, None), ec.EllipticCurvePrivateKey)


def make_authority(name: str, now: datetime) -> KeyPair:
    """Make an authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key.public_key(), now, now + AUTHORITY_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(is_authority=True), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: KeyPair,
    name: str,
    now: datetime,
    *,
    hosts: Sequence[str] = (),
    uris: Sequence[str] = (),
    is_client: bool = False,
    life: timedelta = LEAF_LIFE,
) -> KeyPair:
    """Issue a certificate: for a server at `hosts`, which is also a client, or for a client.

    `uris` are identities that are not addresses.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the authority is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + life, issuer.not_valid_after_utc)
    builder = _builder(_name(name), issuer.subject, key.public_key(), now, until)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(_usage(is_authority=False), critical=True)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if not is_client:
        usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    names = [*map(_general_name, hosts), *map(x509.UniformResourceIdentifier, uris)]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    for extension in (
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
    ):
        builder = builder.add_extension(extension, critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def issue_client(
    authority: KeyPair, name: str, now: datetime, *, life: timedelta = LEAF_LIFE
) -> KeyPair:
    """Issue a certificate that identifies a client: its subject is only `CN=name`."""
    return issue(authority, name, now, is_client=True, life=life)


def reissue(
    authority: KeyPair, certificate: bytes, now: datetime, *, life: timedelta = LEAF_LIFE
) -> KeyPair:
    """Issue the successor of a server's certificate: with its subject, hosts and URIs."""
    leaf = x509.load_pem_x509_certificate(certificate)
    (subject,) = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    hosts, uris = sorted(alternative_names(certificate)), _uris(certificate)
    return issue(authority, str(subject.value), now, hosts=hosts, uris=uris, life=life)


def is_due(certificate: bytes, now: datetime, *, authority: bytes, uri: str = "") -> bool:
    """Tell whether a certificate must be reissued: expires soon, has another issuer or no `uri`.

    A certificate that cannot be read is due, too.
    """
    if not is_issued_by(certificate, authority):
        return True
    if uri and uri not in _uris(certificate):
        return True
    return now >= renewal_time(certificate)


def is_issued_by(certificate: bytes, authority: bytes) -> bool:
    """Tell whether a certificate can be read, and exactly this authority has issued it."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate)
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def renewal_time(certificate: bytes) -> datetime:
    """Return when a certificate is reissued: after two thirds of its life, or a little before.

    Its serial number, which is random, determines how much before.
    """
    leaf = x509.load_pem_x509_certificate(certificate)
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    early = _JITTER * (leaf.serial_number % _JITTER_STEPS) / _JITTER_STEPS
    return leaf.not_valid_before_utc + life * (_SHARE_OF_LIFE - early)


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate; of the first one if the text has several."""
    return x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256()).hex()


def fingerprints(certificates: bytes) -> list[str]:
    """Return the SHA-256 of each certificate's DER, in hexadecimal digits."""
    found = x509.load_pem_x509_certificates(certificates)
    return [each.fingerprint(hashes.SHA256()).hex() for each in found]


def alternative_names(certificate: bytes) -> frozenset[str]:
    """Return the hosts and addresses that a certificate names."""
    names = _alternative_names(certificate)
    return frozenset(
        str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)
    )


def _uris(certificate: bytes) -> list[str]:
    names = _alternative_names(certificate)
    return [name.value for name in names if isinstance(name, x509.UniformResourceIdentifier)]


def _alternative_names(certificate: bytes) -> list[x509.GeneralName]:
    leaf = x509.load_pem_x509_certificate(certificate)
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return list(found.value)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(until)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
