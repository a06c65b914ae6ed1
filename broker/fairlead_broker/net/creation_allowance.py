"""How many new connections a listener may accept now: a rate, and a burst after a quiet time."""

from __future__ import annotations


class CreationAllowance:
    """Refilled by the time that passes; several listeners may share one."""

    def __init__(self, *, per_s: float, burst: int, now_s: float) -> None:
        self.per_s: float = per_s
        self._burst = float(burst)
        self._left = float(burst)
        self._seen_s = now_s

    def available(self, now_s: float) -> int:
        """Return how many may be accepted now."""
        earned = (now_s - self._seen_s) * self.per_s
        self._seen_s = now_s
        self._left = min(self._left + earned, self._burst)
        return int(self._left)

    def spend(self) -> None:
        """One has been accepted."""
        self._left -= 1

    @property
    def is_spent(self) -> bool:
        """Whether the next one has to wait."""
        return self._left < 1
