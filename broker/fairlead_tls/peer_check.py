"""Check that a peer's certificate, which OpenSSL has verified, names the right peer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography import x509

from fairlead_tls.certificates import UNREADABLE
from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.peer_names import PeerNameError, find_caller, read_peer_names

if TYPE_CHECKING:
    from fairlead_tls.peer_names import PeerName


def check_caller(der: bytes | None, cluster: str) -> PeerName:
    """Return the caller's name; TlsRefusedError if it is no broker or controller of `cluster`."""
    try:
        return find_caller(_names_of(der), cluster)
    except PeerNameError as error:
        raise TlsRefusedError(str(error)) from None


def check_called(der: bytes | None, expected: PeerName) -> None:
    """Raise TlsRefusedError unless the certificate of the called peer names `expected`."""
    names = _names_of(der)
    if expected not in names:
        found = ", ".join(map(str, names)) or "nobody"
        raise TlsRefusedError(f"its certificate is that of {found}, not of {expected}")


def _names_of(der: bytes | None) -> tuple[PeerName, ...]:
    if der is None:
        raise TlsRefusedError("it shows no certificate")
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = read_peer_names(certificate)
    except UNREADABLE as error:
        raise TlsRefusedError(f"its certificate cannot be read: {error}") from None
    # OpenSSL checks this in a full handshake, but not if TLS 1.2 resumes a session.
    if datetime.now(UTC) >= certificate.not_valid_after_utc:
        raise TlsRefusedError("its certificate is over")
    return names
