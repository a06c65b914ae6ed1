"""A group: its members, by whichever protocol, its offsets, and what the shell keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.group.group_offsets import GroupOffsets

if TYPE_CHECKING:
    from fairlead_broker.coordinator.shard import Shard
    from fairlead_broker.group.group_protocol import FormerProtocol, GroupProtocol


class CoordinatedGroup:
    """`protocol` has the members; it is another one after a deletion of which half failed.

    `scheduled_ms` is the deadline that the coordinator's timer knows of, None for none.
    `commits_in_flight` counts commits that are appended, or about to be, and not settled.
    `formers` are protocols that it spoke before changes that are on their way to the log.
    `counted_bytes` is what its members took when that was counted last; `counted_offset_bytes` and
    `counted_staged_bytes` are the same of its committed offsets, and of those in transactions.
    `is_gone` once the group is deleted or coordinated elsewhere: nothing is written for it then.
    """

    __slots__ = (
        "commits_in_flight",
        "counted_bytes",
        "counted_offset_bytes",
        "counted_staged_bytes",
        "formers",
        "group_id",
        "is_gone",
        "offsets",
        "protocol",
        "scheduled_ms",
        "shard",
    )

    def __init__(
        self,
        group_id: str,
        shard: Shard[Any],
        protocol: GroupProtocol,
        offsets: GroupOffsets | None,
    ) -> None:
        self.group_id = group_id
        self.shard = shard
        self.protocol = protocol
        self.offsets = GroupOffsets(group_id) if offsets is None else offsets
        self.commits_in_flight = 0
        self.counted_bytes = 0
        self.counted_offset_bytes = 0
        self.counted_staged_bytes = 0
        self.formers: list[FormerProtocol] = []
        self.scheduled_ms: int | None = None
        self.is_gone = False

    @property
    def has_offsets(self) -> bool:
        """Whether anything is committed, on its way, or staged in an open transaction."""
        offsets = self.offsets
        return bool(offsets or offsets.open_transactions or self.commits_in_flight)

    def next_deadline_ms(self) -> int | None:
        """Return when it has something to do at the earliest."""
        return self.protocol.next_deadline_ms()
