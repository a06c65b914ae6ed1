"""How many new connections a listener may accept now: a rate, and a burst after a quiet time."""

from __future__ import annotations

from fairlead_broker.limits import CONNECTION_CREATIONS_BURST, CONNECTION_CREATIONS_BURST_S


def creations_burst(per_s: int) -> int:
    """Return how many clients may connect at once where this many may connect a second.

    Kafka counts in windows of some ten seconds: who lowers the rate lowers the burst, too.
    """
    return min(CONNECTION_CREATIONS_BURST, int(per_s * CONNECTION_CREATIONS_BURST_S))


class CreationAllowance:
    """Refilled by the time that passes; several listeners may share one."""

    def __init__(self, *, per_s: float, burst: int, now_s: float) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._left = float(burst)
        self._seen_s = now_s

    def change(self, *, per_s: float, burst: int) -> None:
        """Go by another rate and burst from now on."""
        self._per_s = per_s
        self._burst = float(burst)

    def available(self, now_s: float) -> int:
        """Return how many may be accepted now."""
        earned = (now_s - self._seen_s) * self._per_s
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
