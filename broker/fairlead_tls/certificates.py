"""The certificates of a listener: read, check, convert for `ssl`, and reload them.

New files make a new context; an existing context is never changed. So connections keep theirs, and
invalid files leave the old certificate in service. This code reads files and computes, so call it
at start or in a thread.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from fairlead_model.configs.security_configs import CONVERT
from fairlead_tls.limits import PEM_BYTES_MAX
from fairlead_tls.peer_names import (
    PeerName,
    PeerNameError,
    find_own_name,
    read_peer_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_tls.peer_settings import PeerTlsSettings
    from fairlead_tls.tls_settings import PemSource, TlsSettings

_BLOCK: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----((?:(?!-----).)*)-----END \1-----", re.DOTALL
)
_LINE_LENGTH: Final = 64
_CERTIFICATE: Final = "CERTIFICATE"
_CIPHERS: Final = (
    "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
)
"""Suites where no setting names any: forward secrecy, and no SHA-1.

Python's own default, but Debian builds its Python with the wider one of OpenSSL.
"""
UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What cryptography raises for a certificate, in part only when a field of it is read."""


class CertificateError(ValueError):
    """Certificates or keys are invalid; the text names the setting and the reason."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The PEM texts at one moment. If two are equal, nothing has changed."""

    key: str = field(repr=False)
    chain: str
    trust: str


@dataclass(frozen=True, slots=True)
class Identity:
    """A context that is ready to serve, and its certificate."""

    material: TlsMaterial
    context: ssl.SSLContext
    certificate: x509.Certificate

    @property
    def ends_s(self) -> float:
        """Unix time at which the certificate expires, in seconds."""
        return self.certificate.not_valid_after_utc.timestamp()

    def describe(self) -> dict[str, Any]:
        """Return the SHA-256 fingerprints of the certificate and of the trusted ones."""
        trust = self.material.trust
        trusted = x509.load_pem_x509_certificates(trust.encode()) if trust else []
        return {
            "certificate": _fingerprint(self.certificate),
            "notAfter": self.certificate.not_valid_after_utc.isoformat(),
            "trusted": [_fingerprint(each) for each in trusted],
        }


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


@dataclass(frozen=True, slots=True)
class PeerIdentity(Identity):
    """Identity of a broker or controller, which is also a client; `context` is the server's."""

    name: PeerName
    client_context: ssl.SSLContext


def read_material(settings: TlsSettings) -> TlsMaterial:
    """Read the files or texts of the settings; CertificateError if one is missing or no PEM."""
    key_text = _read(settings.key)
    # Read a common file once: a key and a chain from two moments might not match.
    chain_text = key_text if settings.chain is settings.key else _read(settings.chain)
    key = _blocks(settings.key, key_text, "PRIVATE KEY")
    chain = _blocks(settings.chain, chain_text, _CERTIFICATE)
    trust = ""
    if settings.trust is not None:
        trust = _blocks(settings.trust, _read(settings.trust), _CERTIFICATE)
    return TlsMaterial(key, chain, trust)


def build_identity(
    settings: TlsSettings, material: TlsMaterial, *, previous: Identity | None = None
) -> Identity:
    """Check the texts and build a context from them; CertificateError says what is wrong.

    Kafka's rule for a certificate that replaces `previous`: it has the same names, unless the
    settings allow others.
    """
    with _readable(settings.chain):
        certificate = _check_chain(settings, material)
        if previous is not None:
            _check_names(settings, previous.certificate, certificate)
    return Identity(material, _build_context(settings, material), certificate)


def build_peer_identity(
    settings: PeerTlsSettings, material: TlsMaterial, *, previous: PeerIdentity | None = None
) -> PeerIdentity:
    """Check the texts, and that the certificate names this process; CertificateError."""
    tls = settings.tls
    with _readable(tls.chain):
        certificate = _check_chain(tls, material, is_peer=True)
        if previous is not None:
            _check_names(tls, previous.certificate, certificate)
        try:
            name = find_own_name(read_peer_names(certificate), settings.broker_id)
        except PeerNameError as error:
            raise CertificateError(f"{tls.chain.setting}: {error}") from None
    _check_trusted(tls, material)
    server, client = (
        _build_context(tls, material, protocol)
        for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    return PeerIdentity(material, server, certificate, name, client)


@contextmanager
def _readable(source: PemSource) -> Iterator[None]:
    """Replace exceptions of cryptography about a setting's certificates by CertificateError."""
    try:
        yield
    except CertificateError:
        raise
    except UNREADABLE as error:
        raise CertificateError(f"{source.setting}: {error}") from None


def _check_chain(
    settings: TlsSettings, material: TlsMaterial, *, is_peer: bool = False
) -> x509.Certificate:
    where = settings.chain.setting
    password = settings.key_password
    leaf, *issuers = x509.load_pem_x509_certificates(material.chain.encode())
    try:
        secret = password.encode() if password else None
        key = load_pem_private_key(material.key.encode(), secret)
    except UNREADABLE as error:
        raise CertificateError(f"{settings.key.setting}: the key cannot be read: {error}") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise CertificateError(f"{where}: the first certificate is not that of the private key")
    subject = leaf
    for issuer in issuers:
        try:
            subject.verify_directly_issued_by(issuer)
        except Exception as error:
            raise CertificateError(
                f"{where}: the chain is out of order, or was not issued like this: {error}"
            ) from None
        subject = issuer
    now = datetime.now(UTC)
    for each in (leaf, *issuers):
        if not each.not_valid_before_utc <= now < each.not_valid_after_utc:
            raise CertificateError(
                f"{where}: {each.subject.rfc4514_string()} holds from "
                f"{each.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} until "
                f"{each.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}, not now"
            )
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return leaf
    if ExtendedKeyUsageOID.SERVER_AUTH not in usages:
        raise CertificateError(f"{where}: the certificate is not meant for servers (serverAuth)")
    if is_peer and ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        raise CertificateError(f"{where}: the certificate is not meant for clients (clientAuth)")
    return leaf


def _check_trusted(settings: TlsSettings, material: TlsMaterial) -> None:
    """Refuse a certificate that peers with the same truststore would refuse."""
    with _readable(settings.trust or settings.chain):
        trusted = x509.load_pem_x509_certificates(material.trust.encode())
    for subject in x509.load_pem_x509_certificates(material.chain.encode()):
        if subject in trusted or any(_is_issued_by(subject, each) for each in trusted):
            return
    raise CertificateError(
        f"{settings.chain.setting}: the certificate comes from no authority that "
        f"{settings.trust.setting if settings.trust else ''} names; let all brokers and "
        "controllers trust a new authority before it issues anything"
    )


def _is_issued_by(subject: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        subject.verify_directly_issued_by(issuer)
    except Exception:
        # cryptography raises three kinds of errors for "no", and others for other signatures.
        return False
    return True


def _check_names(settings: TlsSettings, old: x509.Certificate, new: x509.Certificate) -> None:
    where = settings.chain.setting
    if not settings.allow_dn_changes and old.subject != new.subject:
        raise CertificateError(
            f"{where}: the new certificate is that of {new.subject.rfc4514_string()}, not of "
            f"{old.subject.rfc4514_string()}; ssl.allow.dn.changes allows that"
        )
    if not settings.allow_san_changes and not _alternative_names(new) >= _alternative_names(old):
        raise CertificateError(
            f"{where}: the new certificate lacks names of the old one; "
            "ssl.allow.san.changes allows that"
        )


def _alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(map(repr, names))


def _build_context(
    settings: TlsSettings,
    material: TlsMaterial,
    protocol: int = ssl.PROTOCOL_TLS_SERVER,
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    # The name in a peer's certificate is checked, whatever address the peer has.
    context.check_hostname = False
    context.minimum_version = settings.oldest
    context.maximum_version = settings.newest
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    password = settings.key_password
    try:
        context.set_ciphers(_CIPHERS if settings.ciphers is None else settings.ciphers)
        with _as_file(material.chain + material.key) as path:
            # Without a callback OpenSSL would ask for a password at the terminal.
            context.load_cert_chain(path, password=lambda: password or "")
        context.verify_mode = settings.verify_mode
        if settings.verify_mode is not ssl.CERT_NONE:
            # Trust exactly the named certificates: an intermediate authority is enough by itself.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=material.trust)
            # A resumed session would not be verified again.
            context.options |= ssl.OP_NO_TICKET
            if protocol is ssl.PROTOCOL_TLS_SERVER:
                context.num_tickets = 0
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"{settings.chain.setting}: OpenSSL refuses it: {error}") from None
    except OSError as error:
        # No file descriptor is free for the files that `ssl` reads.
        raise CertificateError(f"{settings.chain.setting}: {error.strerror}") from None
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield a path for a text in memory, because `ssl` reads keys from files only."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _read(source: PemSource) -> str:
    if source.path is None:
        # As in Java's property files: line ends are \n, or blanks instead of them.
        return (source.text or "").replace("\\n", "\n")
    try:
        with Path(source.path).open("rb") as file:
            data = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateError(f"{source.setting}={source.path}: {error.strerror}") from None
    if len(data) > PEM_BYTES_MAX:
        raise CertificateError(f"{source.setting}={source.path}: more than {PEM_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CertificateError(f"{source.setting}={source.path}: {CONVERT}") from None


def _blocks(source: PemSource, text: str, kind: str) -> str:
    """Return the blocks of one kind, in OpenSSL's form; CertificateError if there is none."""
    found = [
        _wrap(match[1], match[2]) for match in _BLOCK.finditer(text) if match[1].endswith(kind)
    ]
    if not found:
        where = source.setting if source.path is None else f"{source.setting}={source.path}"
        raise CertificateError(f"{where}: there is no -----BEGIN {kind}----- in it; {CONVERT}")
    return "".join(found)


def _wrap(label: str, body: str) -> str:
    if ":" in body:
        # The body has header lines of an encrypted key in the old format, which must stay.
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    packed = "".join(body.split())
    lines = [packed[i : i + _LINE_LENGTH] for i in range(0, len(packed), _LINE_LENGTH)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
