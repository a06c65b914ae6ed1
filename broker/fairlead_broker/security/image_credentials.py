"""The credentials in the cluster's image, for the logins of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead_broker.security.credentials import CredentialChanged as Changed
    from fairlead_model.cluster import CredentialChanged
    from fairlead_model.security.scram import ScramCredential, ScramMechanism


class ImageCredentials:
    """`Credentials` of the latest image; before the first image no user has a credential."""

    def __init__(self) -> None:
        self._by_user: Mapping[tuple[ScramMechanism, str], ScramCredential] = {}
        self._watchers: list[Changed] = []

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, or None if there is none."""
        return self._by_user.get((mechanism, user))

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
            for changed in self._watchers:
                changed(change.mechanism, change.user)
