"""Certificates that change without a restart: their files are read again every few seconds.

This also detects the symbolic link that Kubernetes replaces when a mounted Secret changes. A new
certificate is checked as at start, before any connection uses it. An invalid one is logged and
counted, and the previous certificate stays.
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
    """A certificate that is reloaded when it changes; new connections use `current`."""

    def __init__(
        self,
        owner: str,
        read: Callable[[], TlsMaterial],
        build: Callable[[TlsMaterial, SomeIdentity | None], SomeIdentity],
    ) -> None:
        """`owner` is a name for the log. CertificateError if the present files are invalid."""
        self._owner = owner
        self._read = read
        self._build = build
        self._problem = ""
        self.on_refused: Callable[[], None] | None = None
        """Called when a new certificate is refused."""
        self.current: SomeIdentity = build(read(), None)

    async def look(self) -> None:
        """Use a new certificate, if there is a valid one."""
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
    """Check the files of all these certificates forever."""
    while True:
        await asyncio.sleep(poll_s)
        for each in certificates:
            try:
                await each.look()
            except Exception:
                # Go on: if the checks ended, the certificate would expire one day.
                logger.exception("looking for a new certificate failed")
                if each.on_refused is not None:
                    each.on_refused()
