"""A group with all that the shell around its state machine keeps for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.group_offsets import GroupOffsets

if TYPE_CHECKING:
    from fairlead_broker.group.classic_group import ClassicGroup
    from fairlead_broker.group.shard import Shard


class CoordinatedGroup:
    """`classic` is the state machine; another one only where half a deletion failed.

    `scheduled_ms` is the deadline that the coordinator's timer knows of, None for none.

    `commits_in_flight` counts commits that are appended, or about to be, and not settled.
    `counted_bytes` is what its members took when that was counted last.
    `is_gone` once the group is deleted or coordinated elsewhere: nothing is written for it then.
    """

    __slots__ = (
        "classic",
        "commits_in_flight",
        "counted_bytes",
        "group_id",
        "is_gone",
        "offsets",
        "scheduled_ms",
        "shard",
    )

    def __init__(
        self, group_id: str, shard: Shard, classic: ClassicGroup, offsets: GroupOffsets | None
    ) -> None:
        self.group_id = group_id
        self.shard = shard
        self.classic = classic
        self.offsets = GroupOffsets(group_id) if offsets is None else offsets
        self.commits_in_flight = 0
        self.counted_bytes = 0
        self.scheduled_ms: int | None = None
        self.is_gone = False
