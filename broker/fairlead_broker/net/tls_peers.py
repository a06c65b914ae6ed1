"""The peer of a TLS connection, by its certificate.

For the threads in which handshakes compute: what is wrong is found in the step that would end one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cryptography import x509

from fairlead_broker.authorization import ANONYMOUS, Principal
from fairlead_broker.security.distinguished_name import (
    BadNameError,
    format_distinguished_name,
)
from fairlead_broker.security.principal_mapping import NoRuleError
from fairlead_tls.certificates import UNREADABLE
from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.peer_check import check_caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.security.principal_mapping import PrincipalMapping
    from fairlead_tls.followed_certificate import FollowedPeer


class Peer(NamedTuple):
    """The peer, and the end of its certificate."""

    principal: Principal = ANONYMOUS
    until: datetime | None = None
    broker_id: int | None = None
    """Of a broker, which has yet to prove that it knows the cluster's secret."""


Identify: TypeAlias = "Callable[[bytes | None], Peer]"
"""Takes a verified certificate in DER, or None if none was shown; TlsRefusedError."""


def identify_user(mapping: PrincipalMapping | None) -> Identify:
    """For listeners of clients; without `mapping` they log in by SASL."""
    return partial(_find_user, mapping)


def identify_broker(own: FollowedPeer) -> Identify:
    """For the brokers' own listener; `own` says of which cluster."""
    return partial(_find_broker, own)


def _now() -> datetime:
    return datetime.now(UTC)


def _find_user(mapping: PrincipalMapping | None, der: bytes | None) -> Peer:
    if mapping is None or der is None:
        return Peer()
    try:
        certificate = x509.load_der_x509_certificate(der)
        name = format_distinguished_name(certificate.subject.public_bytes())
        user = mapping.apply(name)
    except (NoRuleError, BadNameError, *UNREADABLE) as error:
        raise TlsRefusedError(f"its certificate names no user: {error}") from None
    # OpenSSL has looked at this in a full handshake, but not where TLS 1.2 takes up a session,
    # which Python cannot forbid. Those sessions end with the context, and so with a trusted CA.
    if _now() >= certificate.not_valid_after_utc:
        raise TlsRefusedError(f"the certificate of {name} is over")
    return Peer(Principal("User", user), certificate.not_valid_after_utc)


def _find_broker(own: FollowedPeer, der: bytes | None) -> Peer:
    name = check_caller(der, own.current.name.cluster)
    if name.broker_id is None:
        raise TlsRefusedError(f"its certificate is that of {name}, and only brokers come here")
    # It may outlive its certificate, as with Kafka: a cluster whose certificates are over for want
    # of somebody who renews them goes on, and lets in nobody anew.
    return Peer(broker_id=name.broker_id)
