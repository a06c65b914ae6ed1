"""How much the members of all groups of a broker hold, and whether more may come.

Pure. The limit of a group is a number of members, and each of these may bring 1 MiB; so only a
common limit bounds many groups with many members. `offset_memory` counts committed offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import GROUP_MEMBERS_BYTES_MAX, PARKED_MEMBERS_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.group.coordinated_group import CoordinatedGroup


class GroupMemory:
    """`total_bytes` is the sum of what each group had when it was counted last."""

    def __init__(self) -> None:
        self.total_bytes = 0

    def count(self, group: CoordinatedGroup) -> None:
        """Something has happened to the group."""
        held = 0 if group.is_gone else group.protocol.memory_bytes
        self.total_bytes += held - group.counted_bytes
        group.counted_bytes = held

    def check_more(self, added_bytes: int) -> None:
        """KafkaError where a join would bring more than there is room for.

        A member that is here already may always come back with no more than it has.
        """
        if added_bytes > 0 and self.total_bytes + added_bytes > GROUP_MEMBERS_BYTES_MAX:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"members of groups hold {self.total_bytes} bytes of {GROUP_MEMBERS_BYTES_MAX}",
            )


def check_parked(parked_count: int) -> None:
    """KafkaError where no more joins and syncs may wait."""
    if parked_count >= PARKED_MEMBERS_MAX:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many members wait for their groups"
        )
