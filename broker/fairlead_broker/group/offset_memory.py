"""How much the committed offsets of all groups of a broker hold, and whether more may come.

Pure. A partition of the offsets topic takes so many groups, and each of them an offset with
metadata for every partition there is: these multiply, so they are bounded together. An offset that
is committed already can always be committed again, as long as it takes no more room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import (
    COMMITS_UNDECIDED_BYTES_MAX,
    COMMITTED_OFFSET_BYTES,
    GROUP_OFFSETS_BYTES_MAX,
    GROUP_OVERHEAD_BYTES,
)
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.group.coordinated_group import CoordinatedGroup


def commit_bytes(offsets: Sequence[tuple[str, int, bytes]]) -> int:
    """Return what offsets (topic, partition, value) take while their outcome is open, about."""
    if len(offsets) == 1:  # Nearly every commit.
        return len(offsets[0][2]) + COMMITTED_OFFSET_BYTES
    return sum([len(value) for _, _, value in offsets]) + COMMITTED_OFFSET_BYTES * len(offsets)


class OffsetMemory:
    """`total_bytes` is what groups and their committed offsets took when counted last.

    `undecided_bytes` is what commits take that are on their way to the replicas, or staged in open
    transactions.
    """

    def __init__(self) -> None:
        self.total_bytes = 0
        self.undecided_bytes = 0

    def count(self, group: CoordinatedGroup) -> None:
        """Take note that offsets of the group have come or gone, or the group itself."""
        held = staged = 0
        if not group.is_gone:
            held = _group_bytes(group.group_id) + group.offsets.committed_bytes
            staged = group.offsets.staged_bytes
        self.total_bytes += held - group.counted_offset_bytes
        group.counted_offset_bytes = held
        self.undecided_bytes += staged - group.counted_staged_bytes
        group.counted_staged_bytes = staged

    def check_group(self, group_id: str) -> None:
        """KafkaError where there is no room for another group."""
        self._check(_group_bytes(group_id))

    def check_commit(
        self, group: CoordinatedGroup, offsets: Sequence[tuple[str, int, bytes]]
    ) -> int:
        """Return what a commit takes; KafkaError, which clients retry, if there is no room."""
        size = commit_bytes(offsets)
        if self.undecided_bytes + size > COMMITS_UNDECIDED_BYTES_MAX:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"commits that are not decided hold {self.undecided_bytes} bytes",
            )
        if self.total_bytes + self.undecided_bytes + size > GROUP_OFFSETS_BYTES_MAX:
            self._check(group.offsets.added_bytes(offsets))
        return size

    def _check(self, added_bytes: int) -> None:
        taken = self.total_bytes + self.undecided_bytes
        if added_bytes > 0 and taken + added_bytes > GROUP_OFFSETS_BYTES_MAX:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"groups and their offsets hold {taken} bytes of {GROUP_OFFSETS_BYTES_MAX}",
            )


def _group_bytes(group_id: str) -> int:
    return GROUP_OVERHEAD_BYTES + len(group_id)
