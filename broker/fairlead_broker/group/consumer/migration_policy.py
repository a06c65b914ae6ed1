"""Which groups with members may change their protocol: `group.consumer.migration.policy`."""

from __future__ import annotations

from enum import Enum


class MigrationPolicy(Enum):
    """Which groups with members may change their protocol; empty ones always may."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a group may come to the protocol of KIP-848."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a group may go back to the classic protocol."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)

    @property
    def allows_mixing(self) -> bool:
        """Whether members of both protocols may share a group."""
        return self is not MigrationPolicy.DISABLED
