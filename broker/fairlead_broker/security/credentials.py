"""The SCRAM credentials that a broker knows, and callbacks for their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead_broker.security.sasl.salt_looks import SaltLook
    from fairlead_model.security.scram import ScramCredential, ScramMechanism

CredentialChanged: TypeAlias = "Callable[[ScramMechanism, str], None]"
"""Called when a user's credential for a mechanism has changed or has been removed."""


class Credentials(Protocol):
    """Finds the credential that verifies a login. Called on the loop, so it answers from memory."""

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, or None if there is none."""
        ...

    def looks(self, mechanism: ScramMechanism) -> Mapping[SaltLook, int]:
        """Return how a mechanism's credentials look to clients, and how many look so."""
        ...

    def watch(self, changed: CredentialChanged) -> None:
        """Call `changed` whenever a user's credential for a mechanism is added, changed or removed.

        The call comes on the loop, when `find` already returns the new credential, so that
        connections that logged in with the old one can be closed.
        """
        ...
