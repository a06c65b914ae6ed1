"""Certificates of users as PKCS#12, which Java's older clients need."""

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from fairlead_operator.certificates.authority import KeyPair


def build_pkcs12(name: str, pair: KeyPair, authority: bytes, password: str) -> bytes:
    """Return key, certificate and the authority's certificate as PKCS#12, under a password."""
    key = load_pem_private_key(pair.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the user is not an elliptic curve key")
    return serialize_key_and_certificates(
        name.encode(),
        key,
        x509.load_pem_x509_certificate(pair.certificate),
        [x509.load_pem_x509_certificate(authority)],
        BestAvailableEncryption(password.encode()),
    )
