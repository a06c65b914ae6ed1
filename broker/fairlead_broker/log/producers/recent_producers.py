"""Snapshots of a log's producers in memory, at a few offsets near its end. Pure.

After a truncation the producers at the new end come from a snapshot and the batches after it. The
newest one on disk is mostly at the base of the active segment, and to read that segment header by
header blocks the loop for seconds. These are a few MiB apart, and more if there are thousands of
producers.
"""

from typing import Final, NamedTuple

SNAPSHOTS_MAX: Final = 3


class RecentSnapshot(NamedTuple):
    """The producers of a log at an offset, encoded as in a snapshot file."""

    offset: int
    content: bytes


class RecentProducers:
    """The newest snapshots of one log, at rising offsets."""

    __slots__ = ("_passed", "_snapshots")

    def __init__(self) -> None:
        self._snapshots: list[RecentSnapshot] = []
        self._passed = 0
        """Write-outs since the newest one."""

    def is_due(self, spacing: int) -> bool:
        """Count a write-out; tell whether a snapshot is due at each `spacing`th of them."""
        self._passed += 1
        return not self._snapshots or self._passed >= spacing

    def note(self, offset: int, content: bytes) -> None:
        """Keep the producers at the log's end, and drop the oldest ones if there are too many."""
        self._passed = 0
        self.forget_above(offset - 1)
        self._snapshots.append(RecentSnapshot(offset, content))
        del self._snapshots[:-SNAPSHOTS_MAX]

    def newest(self, first_offset: int, end_offset: int) -> RecentSnapshot | None:
        """Return the newest snapshot within a range of offsets, None if there is none."""
        for snapshot in reversed(self._snapshots):
            if first_offset <= snapshot.offset <= end_offset:
                return snapshot
        return None

    def forget_above(self, end_offset: int) -> None:
        """Drop the snapshots above the log's new end."""
        while self._snapshots and self._snapshots[-1].offset > end_offset:
            del self._snapshots[-1]

    def forget_up_to(self, offset: int) -> None:
        """Drop older snapshots: transactions that are open in them have lost their markers."""
        self._snapshots = [each for each in self._snapshots if each.offset > offset]
