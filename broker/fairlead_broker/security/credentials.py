"""The SCRAM credentials that a broker knows, and who hears when one of them changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_model.security.scram import ScramCredential, ScramMechanism

CredentialChanged: TypeAlias = "Callable[[ScramMechanism, str], None]"
"""Hears that a user's credential for a mechanism is another one now, or gone."""


class Credentials(Protocol):
    """Finds what verifies a login. Asked on the loop, so it answers from memory."""

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, or None if there is none."""
        ...

    def watch(self, changed: CredentialChanged) -> None:
        """Call back whenever a user's credential for a mechanism has changed or has gone.

        It is called on the loop, after `find` answers with what is new, so that connections that
        logged in with the old credential can be closed. A first credential is told, too.
        """
        ...
