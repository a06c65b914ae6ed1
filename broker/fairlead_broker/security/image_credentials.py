"""The credentials in the cluster's image, for the logins of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.security.sasl.salt_looks import LookCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead_broker.security.credentials import CredentialChanged as Changed
    from fairlead_broker.security.sasl.salt_looks import SaltLook
    from fairlead_model.cluster import CredentialChanged
    from fairlead_model.security.scram import ScramCredential, ScramMechanism


class ImageCredentials:
    """`Credentials` of the latest image; before the first image no user has a credential."""

    def __init__(self) -> None:
        self._by_user: Mapping[tuple[ScramMechanism, str], ScramCredential] = {}
        self._looks = LookCounts()
        self._watchers: list[Changed] = []

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, or None if there is none."""
        return self._by_user.get((mechanism, user))

    def looks(self, mechanism: ScramMechanism) -> Mapping[SaltLook, int]:
        """Return how a mechanism's credentials look to clients, and how many look so."""
        return self._looks.of(mechanism)

    def watch(self, changed: Changed) -> None:
        """Call `changed` for each credential that is added, changed or removed."""
        self._watchers.append(changed)

    def publish(
        self,
        credentials: Mapping[tuple[ScramMechanism, str], ScramCredential],
        changes: Iterable[CredentialChanged],
    ) -> None:
        """Use these credentials from now on, and report changes to the watchers."""
        self._by_user = credentials
        for change in changes:
            known = credentials.get((change.mechanism, change.user))
            self._looks.note(change.mechanism, change.user, known)
            for changed in self._watchers:
                changed(change.mechanism, change.user)
