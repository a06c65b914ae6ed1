"""So many records a second, evenly."""

from __future__ import annotations

# A source that stalled is not made up for by more than so much of a burst.
CATCH_UP_S_MAX = 1.0


class Pace:
    """Says how long to wait before the next record. Times are monotonic seconds."""

    def __init__(self, rate_per_s: float, now: float) -> None:
        self.interval_s = 1.0 / rate_per_s
        self.due = now

    def take_delay(self, now: float) -> float:
        """Return seconds until the next record may go, 0 if it may now; counts it as sent then."""
        self.due = max(self.due, now - CATCH_UP_S_MAX)
        delay = max(0.0, self.due - now)
        self.due += self.interval_s
        return delay
