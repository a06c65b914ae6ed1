"""A queue of keys: each waits at most once, and no two workers have one key at the same time.

A key that is added while it is being worked on waits until that has finished. A key that failed
waits longer each time; success resets that.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")

BACKOFF_S_MIN: Final = 0.25
BACKOFF_S_MAX: Final = 5.0
UNEXPECTED_DELAY_S: Final = 30.0
"""The longest pause after an error that nobody foresaw, before its object is tried again."""


class WorkQueue(Generic[K]):
    """Bounded by the number of existing keys; `now` returns seconds that never go back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}
        self._number = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K, delay_s: float = 0.0) -> None:
        """Add a key, to be worked on after a delay; an earlier time for it takes precedence."""
        due = self._now() + delay_s
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        if key not in self._active:
            self._push(key, due)

    def retry(self, key: K, *, backoff_s_max: float = BACKOFF_S_MAX) -> float:
        """Add a key again after its back-off; return the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = min(backoff_s_max, BACKOFF_S_MIN * 2.0 ** min(failures, 10))
        self.add(key, delay_s)
        return delay_s

    def succeeded(self, key: K) -> None:
        """Forget earlier failures of a key."""
        self._failures.pop(key, None)

    def finish(self, key: K) -> None:
        """End the work on a key; if it was added meanwhile, it is next."""
        self._active.discard(key)
        due = self._due.get(key)
        if due is not None:
            self._push(key, due)

    def take(self, maximum: int) -> list[K]:
        """Return keys that are due, oldest first; each has to be finished."""
        taken: list[K] = []
        while self._heap and len(taken) < maximum:
            due, _, key = self._heap[0]
            if self._due.get(key) != due or key in self._active:
                heapq.heappop(self._heap)  # outdated: it was taken, or added for an earlier time
                continue
            if due > self._now():
                break
            heapq.heappop(self._heap)
            del self._due[key]
            self._active.add(key)
            taken.append(key)
        return taken

    async def batch(self, maximum: int, gather_s: float = 0.0) -> list[K]:
        """Wait for keys that are due; once there is one, collect more for a moment."""
        while not (taken := self.take(maximum)):
            self._wake.clear()
            timeout_s = max(0.0, self._heap[0][0] - self._now()) if self._heap else None
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
        if gather_s and len(taken) < maximum:
            await asyncio.sleep(gather_s)
            taken += self.take(maximum - len(taken))
        return taken

    def _push(self, key: K, due: float) -> None:
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, key))
        self._wake.set()
