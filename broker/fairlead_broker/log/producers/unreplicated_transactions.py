"""Transactions whose end is in the log and not yet below the high watermark. Pure.

Such a transaction still holds the last stable offset: the next leader may lack the marker, and the
transaction would be open again behind what readers saw. So it counts until the high watermark is
above its marker (R27).
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple


class EndedTransaction(NamedTuple):
    """First offset of a transaction, and that of the marker that ended it."""

    first_offset: int
    marker_offset: int


class UnreplicatedTransactions:
    """Added in the order of their markers, forgotten as the high watermark passes those.

    Only their lowest first offset is ever asked for. One that began at or above the beginning of
    another that ends later never is the lowest, so it is dropped: both offsets rise from entry to
    entry.
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
        """The lowest offset of any of them; None if there are none."""
        return self._ended[0].first_offset if self._ended else None

    def add(self, first_offset: int, marker_offset: int) -> None:
        """Note a transaction that was ended."""
        ended = self._ended
        while ended and ended[-1].first_offset >= first_offset:
            ended.pop()
        ended.append(EndedTransaction(first_offset, marker_offset))

    def forget_below(self, high_watermark: int) -> None:
        """Forget those whose marker is committed."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()

    def clear(self) -> None:
        self._ended.clear()
