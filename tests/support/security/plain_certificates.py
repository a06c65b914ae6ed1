"""Certificates as OpenSSL's plain commands make them, without key identifiers and key usage.

Many authorities of Kafka clusters were made like that (`openssl req -x509`, `openssl x509 -req`).
librdkafka and Java's clients accept them. So does Python until 3.12.
"""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from secure_listener import Certificates

from fairlead_operator.certificates.authority import KeyPair

HOST = "127.0.0.1"


class PlainCertificates(Certificates):
    """An authority without key identifiers: its own root, or below an issuer."""

    def __init__(
        self, directory: Path, name: str = "Plain CA", issuer: KeyPair | None = None
    ) -> None:
        super().__init__(directory, name)
        self.authority = _sign(name, issuer, x509.BasicConstraints(ca=True, path_length=None))
        self.ca.write_bytes(self.authority.certificate)

    def issue(self, name: str, **_: Any) -> Path:
        """Issue a certificate of a server."""
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))])
        return self.write(name, _sign(name, self.authority, names))


def _sign(name: str, issuer: KeyPair | None, extension: x509.ExtensionType) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    signer, signer_key = _name(name), key
    if issuer is not None:
        signer = x509.load_pem_x509_certificate(issuer.certificate).subject
        loaded = load_pem_private_key(issuer.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer_key = loaded
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(signer, _name(name), key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension, critical=False)
        .sign(signer_key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(certificate.public_bytes(Encoding.PEM), pem)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def check_as_newer_pythons_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give contexts the defaults of Python 3.13 and later, whichever runs the test."""
    build = ssl.create_default_context

    def build_newer(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = build(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", build_newer)


def shake_hands(client: ssl.SSLContext, certificate: Path) -> None:
    """Let a client check a server's certificate, without a network; SSLError if it refuses."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    of_client = client.wrap_bio(back, there, server_hostname=HOST)
    of_server = server.wrap_bio(there, back, server_side=True)
    is_done = False
    while not is_done:
        is_done = True
        for side in (of_client, of_server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                is_done = False
