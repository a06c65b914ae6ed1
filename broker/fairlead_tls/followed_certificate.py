"""A certificate that changes without a restart: its files are looked at every few seconds.

That also finds the swapped link by which Kubernetes changes a mounted Secret. What is new is
checked as at the start before any connection gets it; what cannot serve is logged and counted, and
the certificate of before stays.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from fairlead_tls.certificates import (
    CertificateError,
    Identity,
    PeerIdentity,
    build_identity,
    build_peer_identity,
    read_material,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead_tls.certificates import TlsMaterial
    from fairlead_tls.peer_settings import PeerTlsSettings
    from fairlead_tls.tls_settings import TlsSettings

logger = logging.getLogger(__name__)
POLL_S: Final = 5.0

SomeIdentity = TypeVar("SomeIdentity", bound=Identity)


class FollowedCertificate(Generic[SomeIdentity]):
    """`current` is what new connections get."""

    def __init__(
        self,
        owner: str,
        read: Callable[[], TlsMaterial],
        build: Callable[[TlsMaterial, SomeIdentity | None], SomeIdentity],
    ) -> None:
        """`owner` is for the log. CertificateError says why what is there cannot serve."""
        self._owner = owner
        self._read = read
        self._build = build
        self._problem = ""
        self.on_refused: Callable[[], None] | None = None
        """Called when a new one is refused."""
        self.current: SomeIdentity = build(read(), None)

    async def look(self) -> None:
        """Take a new certificate, if there is one that can serve."""
        try:
            found = await asyncio.to_thread(self._read_changed)
        except CertificateError as error:
            if self._problem != str(error):
                self._problem = str(error)
                if self.on_refused is not None:
                    self.on_refused()
                logger.error("%s keeps its certificate: %s", self._owner, error)
            return
        self._problem = ""
        if found is not None:
            self.current = found
            logger.info(
                "%s has a new certificate, which holds until %s",
                self._owner,
                found.certificate.not_valid_after_utc,
            )

    def _read_changed(self) -> SomeIdentity | None:
        material = self._read()
        return None if material == self.current.material else self._build(material, self.current)


FollowedPeer = FollowedCertificate[PeerIdentity]


def follow_listener(listener: str, settings: TlsSettings) -> FollowedCertificate[Identity]:
    """Return the certificate of a listener for clients; CertificateError."""
    return FollowedCertificate(
        f"listener {listener}",
        lambda: read_material(settings),
        lambda material, previous: build_identity(settings, material, previous=previous),
    )


def follow_peer(listener: str, settings: PeerTlsSettings) -> FollowedPeer:
    """Return the certificate of a listener for brokers and controllers; CertificateError."""
    return FollowedCertificate(
        f"listener {listener}",
        lambda: read_material(settings.tls),
        lambda material, previous: build_peer_identity(settings, material, previous=previous),
    )


async def follow_files(
    certificates: Sequence[FollowedCertificate[Identity] | FollowedPeer], *, poll_s: float = POLL_S
) -> None:
    """Look at the files of all these certificates for ever."""
    while True:
        await asyncio.sleep(poll_s)
        for each in certificates:
            try:
                await each.look()
            except Exception:
                # Whoever looks no more shows a certificate that is over one day.
                logger.exception("looking for a new certificate failed")
                if each.on_refused is not None:
                    each.on_refused()
