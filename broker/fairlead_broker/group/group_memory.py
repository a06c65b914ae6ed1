"""How much the members of all groups of a broker hold, and whether more may come.

Pure. A group's own limit is a number of members, and each of these may bring a mebibyte: many
groups of many members are bounded only together. What is committed is not in here: it has been
written to the log before it takes memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.member import member_bytes
from fairlead_broker.limits import GROUP_MEMBERS_BYTES_MAX, PARKED_MEMBERS_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_types import JoinRequest


class GroupMemory:
    """`total_bytes` is the sum of what each group had when it was counted last."""

    def __init__(self) -> None:
        self.total_bytes = 0

    def count(self, group: CoordinatedGroup) -> None:
        """Something has happened to the group."""
        held = 0 if group.is_gone else group.classic.memory_bytes
        self.total_bytes += held - group.counted_bytes
        group.counted_bytes = held

    def check_join(self, group: CoordinatedGroup | None, request: JoinRequest) -> None:
        """KafkaError where a join would bring more than there is room for.

        A member that is here already may always come back with no more than it has.
        """
        member = None
        if group is not None:
            members = group.classic.members
            member = members.get(request.member_id)
            member = member or members.of_instance(request.group_instance_id)
        added = member_bytes(request.protocols)
        if member is not None:
            added -= member_bytes(member.protocols)
        if added > 0 and self.total_bytes + added > GROUP_MEMBERS_BYTES_MAX:
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
