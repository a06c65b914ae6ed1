"""Durations, counted by powers of two, so that noting one costs two additions.

A duration falls into the bucket of its bit length in nanoseconds. Sums are exact. Quantiles are
computed from the buckets on request, over the last minutes and not since the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS: Final = 64
"""Enough for the lifetime of any process."""
WINDOW_NS: Final = 60_000_000_000
"""Quantiles cover at least this time, once the process is old enough, and at most twice that plus
the time between two requests for them."""


class Durations:
    """Durations of one kind since the process started. The hot path changes both fields itself."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        """By bit length: `counts[n]` durations are below 2**n ns, and not below half of that."""
        self.total_ns = 0

    def note(self, duration_ns: int) -> None:
        """Count one duration."""
        self.counts[duration_ns.bit_length()] += 1
        self.total_ns += duration_ns

    @property
    def count(self) -> int:
        return sum(self.counts)


class RequestTimes(Durations):
    """Durations of the requests of one API, from the last byte read until the reply is ready.

    Requests that were read together are answered together: each of them takes as long as all.
    `local_ns` is the time that the event loop spent on requests. `remote_ns` is the time from the
    parking of a request until its answer. In the rest of the total, requests waited for others.
    """

    __slots__ = ("local_ns", "remote_ns")

    def __init__(self) -> None:
        super().__init__()
        self.local_ns = 0
        self.remote_ns = 0


class RecentDurations:
    """Remembers earlier counts of named durations, to compute recent ones.

    There are two generations: the older one is subtracted.
    """

    def __init__(self) -> None:
        self._older: dict[str, list[int]] = {}
        self._newer: dict[str, list[int]] = {}
        self._turned_ns = 0

    def turn(self, now_ns: int, current: dict[str, list[int]]) -> None:
        """Begin a new generation if the newer one is old enough; `current` has all counts."""
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
    """Return the duration that `fraction` of all durations do not exceed.

    NaN if there are none. The error is less than a factor of two.
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
