"""How long things took: counted by powers of two, so that noting one costs two additions.

A duration falls into the bucket of its bit length in nanoseconds. Sums are exact; quantiles are
read off the buckets when somebody asks, over the last minutes rather than since the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS: Final = 64
"""Enough for any time that a process can live."""
WINDOW_NS: Final = 60_000_000_000
"""Quantiles look back at least so long, once the process is old enough, and at most twice that
plus the time between two questions."""


class Durations:
    """Durations of one kind since the process started. The hot path adds to both in place."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        """By bit length: `counts[n]` were shorter than 2**n ns, and not shorter than half that."""
        self.total_ns = 0

    def note(self, duration_ns: int) -> None:
        """Count one."""
        self.counts[duration_ns.bit_length()] += 1
        self.total_ns += duration_ns

    @property
    def count(self) -> int:
        return sum(self.counts)


class RequestTimes(Durations):
    """Durations of the requests of one API, from the last byte read to the reply in hand.

    Requests that were read together are answered together: each of them takes as long as all, and
    `local_ns` is what the event loop spent on them. Of a request that was parked, `remote_ns` is
    what came after, until it was answered. What is left of the total, requests waited for others.
    """

    __slots__ = ("local_ns", "remote_ns")

    def __init__(self) -> None:
        super().__init__()
        self.local_ns = 0
        self.remote_ns = 0


class RecentDurations:
    """Remembers earlier counts of named durations, to tell what happened since.

    Two generations: the older is the one that is subtracted.
    """

    def __init__(self) -> None:
        self._older: dict[str, list[int]] = {}
        self._newer: dict[str, list[int]] = {}
        self._turned_ns = 0

    def turn(self, now_ns: int, current: dict[str, list[int]]) -> None:
        """Begin a new generation if the newest is old enough; `current` are all counts now."""
        if now_ns - self._turned_ns >= WINDOW_NS:
            self._turned_ns = now_ns
            self._older = self._newer
            self._newer = {name: list(counts) for name, counts in current.items()}

    def since(self, name: str, counts: Sequence[int]) -> list[int]:
        """Return the recent part of `counts`."""
        older = self._older.get(name)
        if older is None:
            return list(counts)
        return [now - then for now, then in zip(counts, older, strict=True)]


def quantile_ns(counts: Sequence[int], fraction: float) -> float:
    """Return the duration that `fraction` of them do not exceed.

    NaN where there are none. The error is less than a factor of two.
    """
    total = sum(counts)
    if total == 0:
        return float("nan")
    rank = fraction * total
    below = 0
    for bits, count in enumerate(counts):
        if count and below + count >= rank:
            lower = 1 << (bits - 1) if bits else 0
            upper = 1 << bits
            return lower + (upper - lower) * max(rank - below, 0.0) / count
        below += count
    return float(1 << (BUCKETS - 1))
