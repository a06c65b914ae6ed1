"""A steady number of records a second."""

from __future__ import annotations

# After a pause of the source, a burst makes up for at most this time.
CATCH_UP_S_MAX = 1.0


class Pace:
    """Computes the wait before the next record. Times are monotonic seconds."""

    def __init__(self, rate_per_s: float, now: float) -> None:
        self.interval_s = 1.0 / rate_per_s
        self.due = now

    def take_delay(self, now: float) -> float:
        """Return the seconds to wait before the next record, which counts as sent then."""
        self.due = max(self.due, now - CATCH_UP_S_MAX)
        delay = max(0.0, self.due - now)
        self.due += self.interval_s
        return delay
