"""How a cluster's authority is made, and how a new authority replaces it. Pure.

A rotation has this order, so that every peer always trusts the certificates that it gets:

1. The next authority is made, and is trusted beside the current one.
2. All brokers have reported that they trust it, and clients have had time to load it.
3. It becomes the current one, and issues all certificates anew; the former one stays trusted.
4. All certificates of brokers and users are from the current one, and clients have had time to
   load them: the former one is dropped.

A broker that is down delays steps 2 and 4 as long as it is declared. Between steps, the whole state
is in Secrets, so a rotation continues after any crash.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from cryptography import x509

from fairlead_operator.certificates.authority import KeyPair, renewal_time

if TYPE_CHECKING:
    from collections.abc import Mapping

CA_CERTIFICATE: Final = "ca.crt"
"""In the Secret for clients: all certificates to trust. In the other: the current authority's."""
CA_KEY: Final = "ca.key"
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
FORMER_CERTIFICATE: Final = "former.crt"
PROMOTED: Final = "promoted"


class AuthorityError(ValueError):
    """A Secret does not hold a valid authority; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """The content of the Secret with the authority's key."""

    current: KeyPair
    """It issues certificates."""
    next: KeyPair | None = None
    """It is trusted, and issues nothing yet."""
    former: bytes = b""
    """It is still trusted, and issues nothing any more."""
    promoted: datetime | None = None
    """When `current` replaced `former`."""

    @property
    def trusted(self) -> bytes:
        """All certificates to trust, as PEM."""
        upcoming = b"" if self.next is None else self.next.certificate
        return self.current.certificate + upcoming + self.former


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationSight:
    """What is known about which peers trust which authority."""

    is_asked_for: bool
    """Whether a user requests a new authority before the current one is old."""
    is_trusted: bool
    """Whether all declared brokers have reported that they trust all of `Authorities.trusted`."""
    is_issued: bool
    """Whether all certificates in use are known to be from the current authority."""
    overlap: timedelta
    """Time that clients have to load changes."""


class Step(Enum):
    """The next step of a rotation."""

    NONE = auto()
    ANNOUNCE = auto()
    PROMOTE = auto()
    DROP = auto()


def decide_step(authorities: Authorities, sight: RotationSight, now: datetime) -> Step:
    """Return the next step."""
    if authorities.former:
        over = _is_over(authorities.former, now)
        waited = authorities.promoted is None or now - authorities.promoted >= sight.overlap
        return Step.DROP if sight.is_issued and (waited or over) else Step.NONE
    if authorities.next is None:
        is_old = now >= renewal_time(authorities.current.certificate)
        return Step.ANNOUNCE if is_old or sight.is_asked_for else Step.NONE
    if _is_over(authorities.current.certificate, now):
        return Step.PROMOTE  # No peer accepts a certificate that it has issued any more.
    waited = now - _made(authorities.next.certificate) >= sight.overlap
    return Step.PROMOTE if sight.is_trusted and waited else Step.NONE


def announce(authorities: Authorities, upcoming: KeyPair) -> Authorities:
    """Trust the next authority."""
    return replace(authorities, next=upcoming)


def promote(authorities: Authorities, now: datetime) -> Authorities:
    """Let the next authority issue certificates, and keep trusting the former one."""
    if authorities.next is None:
        raise ValueError("there is no next authority")
    return Authorities(
        current=authorities.next, former=authorities.current.certificate, promoted=now
    )


def drop(authorities: Authorities) -> Authorities:
    """Stop trusting the former authority."""
    return replace(authorities, former=b"", promoted=None)


def read_authorities(data: Mapping[str, str]) -> Authorities:
    """Read the `data` of the Secret with the authority's key; AuthorityError if it is invalid."""
    current = _read_pair(data, CA_CERTIFICATE, CA_KEY)
    if current is None:
        raise AuthorityError(f"{CA_CERTIFICATE} or {CA_KEY} is missing")
    try:
        former = _decode(data, FORMER_CERTIFICATE)
        if former:
            x509.load_pem_x509_certificate(former)
        return Authorities(
            current=current,
            next=_read_pair(data, NEXT_CERTIFICATE, NEXT_KEY),
            former=former,
            promoted=_read_time(data, PROMOTED),
        )
    except ValueError as error:
        raise AuthorityError(str(error)) from error


def write_authorities(authorities: Authorities) -> dict[str, str]:
    """Return the `data` of the Secret with the authority's key."""
    texts = {
        CA_CERTIFICATE: authorities.current.certificate,
        CA_KEY: authorities.current.key,
    }
    if authorities.next is not None:
        texts[NEXT_CERTIFICATE] = authorities.next.certificate
        texts[NEXT_KEY] = authorities.next.key
    if authorities.former:
        texts[FORMER_CERTIFICATE] = authorities.former
    if authorities.promoted is not None:
        texts[PROMOTED] = authorities.promoted.astimezone(UTC).isoformat().encode()
    return {name: base64.b64encode(text).decode() for name, text in texts.items()}


def _read_pair(data: Mapping[str, str], certificate: str, key: str) -> KeyPair | None:
    pair = KeyPair(_decode(data, certificate), _decode(data, key))
    if not pair.certificate or not pair.key:
        return None
    if not pair.fits():
        raise AuthorityError(f"{key} is not the key of {certificate}")
    if not pair.may_issue():
        raise AuthorityError(
            f"{certificate} cannot issue certificates: its key has to be one of an elliptic curve, "
            "and it needs a subject key identifier"
        )
    return pair


def _read_time(data: Mapping[str, str], name: str) -> datetime | None:
    text = _decode(data, name).decode()
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise AuthorityError(f"{name} has no time zone")
    return moment


def _decode(data: Mapping[str, str], name: str) -> bytes:
    try:
        text = base64.b64decode(data.get(name, ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise AuthorityError(f"{name}: {error}") from error
    if not text.isascii():
        raise AuthorityError(f"{name} is not text in PEM")
    return text


def _is_over(certificate: bytes, now: datetime) -> bool:
    return now >= x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _made(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_before_utc
