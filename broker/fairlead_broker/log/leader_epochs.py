"""The start offset of each leader epoch, by which replicas find where their logs diverge.

Both values of the entries (epoch, start offset) rise. R2: the end of epoch e is the start of the
next higher one. R4: a new leader records its epoch before it appends anything, so that an epoch
without records is found, too. Entries that contradict a new one are dropped.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

UNDEFINED: Final = -1


class EpochEndOffset(NamedTuple):
    """Answer to "where does this epoch end?"; both -1 if this log does not know."""

    leader_epoch: int
    end_offset: int


NO_EPOCH_END: Final = EpochEndOffset(UNDEFINED, UNDEFINED)


class LeaderEpochs:
    """The entries of one log, in memory; `is_dirty` until the owner has written them."""

    __slots__ = ("_epochs", "_starts", "is_dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs = [epoch for epoch, _ in entries or ()]
        self._starts = [start for _, start in entries or ()]
        self.is_dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def last_epoch(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self._epochs[-1] if self._epochs else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` starts at this offset; return whether anything changed.

        An epoch that is already the newest keeps its start. Entries at or above the new epoch, or
        starting at or above the new start, are dropped: the log does not have them any more.
        """
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            del self._epochs[-1], self._starts[-1]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.is_dirty = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return where `epoch` ends (R2), with the largest epoch not above it that this log has.

        entries (2, 10) (5, 30), log end 40:
        epoch 5 -> (5, 40)    the newest ends with the log
        epoch 3 -> (2, 30)    not in this log: the end of the next lower epoch
        epoch 1 -> (1, 10)    lower than all: this log has no record of it
        epoch 6 -> undefined  higher than all: the asker knows more than this log
        """
        if not self._epochs or epoch == UNDEFINED:
            return NO_EPOCH_END
        if epoch == self._epochs[-1]:
            return EpochEndOffset(epoch, log_end_offset)
        at = bisect_right(self._epochs, epoch)
        if at == len(self._epochs):
            return NO_EPOCH_END
        if at == 0:
            return EpochEndOffset(epoch, self._starts[0])
        return EpochEndOffset(self._epochs[at - 1], self._starts[at])

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which an offset was written, -1 if it lies before all entries."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop entries that start at or above the new end of the log."""
        while self._starts and self._starts[-1] >= end_offset:
            del self._epochs[-1], self._starts[-1]
            self.is_dirty = True

    def drop_above(self, epoch: int) -> None:
        """Drop entries of higher epochs, because the log has no records of them."""
        while self._epochs and self._epochs[-1] > epoch:
            del self._epochs[-1], self._starts[-1]
            self.is_dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop entries wholly below the new start; the epoch that spans it now starts there."""
        at = bisect_right(self._starts, start_offset)
        if at == 0 or (at == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: at - 1], self._starts[: at - 1]
        self._starts[0] = start_offset
        self.is_dirty = True

    def forget_started_below(self, offset: int) -> None:
        """Drop entries that start below `offset`, also the one that spans it."""
        at = bisect_left(self._starts, offset)
        if at:
            del self._epochs[:at], self._starts[:at]
            self.is_dirty = True
