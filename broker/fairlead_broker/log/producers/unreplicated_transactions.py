"""Transactions whose end is in the log but not yet below the high watermark. Pure.

Such a transaction still holds back the last stable offset: the next leader may lack the marker, and
the transaction would be open again below offsets that readers have seen. So it counts until the
high watermark is above its marker (R27).
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple


class EndedTransaction(NamedTuple):
    """First offset of a transaction, and the offset of the marker that ended it."""

    first_offset: int
    marker_offset: int


class UnreplicatedTransactions:
    """Transactions in the order of their markers, until the high watermark passes these.

    Callers only need the lowest first offset. A transaction that begins at or above the beginning
    of another one that ends later never has the lowest, so it is dropped. So both offsets rise from
    entry to entry.
    """

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: deque[EndedTransaction] = deque()

    def __iter__(self) -> Iterator[EndedTransaction]:
        return iter(self._ended)

    def __len__(self) -> int:
        return len(self._ended)

    @property
    def first_offset(self) -> int | None:
        """The lowest first offset of all; None if there are none."""
        return self._ended[0].first_offset if self._ended else None

    def add(self, first_offset: int, marker_offset: int) -> None:
        """Note a transaction that has ended."""
        ended = self._ended
        while ended and ended[-1].first_offset >= first_offset:
            ended.pop()
        ended.append(EndedTransaction(first_offset, marker_offset))

    def forget_below(self, high_watermark: int) -> None:
        """Forget transactions whose marker is committed."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()

    def clear(self) -> None:
        self._ended.clear()
