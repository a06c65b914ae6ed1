"""Files and Secrets with a damaged byte: what cannot serve is a CertificateError, and nothing else.

Whoever looks for a new certificate lives on with the old one only then. cryptography reads some
fields of a certificate when they are asked for, and has errors of several kinds.
"""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from peer_certificates import PeerCertificates

from fairlead_tls.certificates import (
    CertificateError,
    build_identity,
    build_peer_identity,
    read_material,
)
from fairlead_tls.peer_settings import PeerTlsSettings
from fairlead_tls.tls_settings import PemSource, TlsSettings

pytestmark = pytest.mark.filterwarnings(
    "ignore:Parsed a serial number:cryptography.utils.CryptographyDeprecationWarning"
)
EVERY = 3
"""Of the bytes one in so many is damaged."""


@pytest.fixture
def settings(tmp_path: Path) -> PeerTlsSettings:
    peers = PeerCertificates(tmp_path)
    path = peers.of(2)
    source = PemSource("chain", path=str(path))
    tls = TlsSettings(
        key=source,
        chain=source,
        trust=PemSource("trust", path=str(peers.ca)),
        key_password=None,
        verify_mode=ssl.CERT_REQUIRED,
        oldest=ssl.TLSVersion.TLSv1_3,
        newest=ssl.TLSVersion.TLSv1_3,
        ciphers=None,
        allow_dn_changes=False,
        allow_san_changes=False,
    )
    return PeerTlsSettings(tls, broker_id=2)


def damaged(pem: str) -> Iterator[str]:
    der = ssl.PEM_cert_to_DER_cert(pem)
    for at in range(0, len(der), EVERY):
        for flipped in (0xFF, 0x01):
            changed = bytearray(der)
            changed[at] ^= flipped
            yield ssl.DER_cert_to_PEM_cert(bytes(changed))


@pytest.mark.parametrize("part", ["chain", "trust"])
def test_a_damaged_byte_is_refused_or_does_no_harm(settings: PeerTlsSettings, part: str) -> None:
    tls = settings.tls
    material = read_material(tls)
    before = build_peer_identity(settings, material)
    refused = {"peers": 0, "clients": 0}
    for pem in damaged(getattr(material, part)):
        changed = replace(material, **{part: pem})
        try:
            build_peer_identity(settings, changed, previous=before)
        except CertificateError as error:
            assert str(error).startswith(("chain: ", "trust: ")), error
            refused["peers"] += 1
        try:
            build_identity(tls, changed, previous=before)
        except CertificateError:
            refused["clients"] += 1
    assert refused["peers"] > 100 and refused["clients"] > 0
