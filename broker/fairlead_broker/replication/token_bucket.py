"""A rate in bytes a second, held to within a tenth of a second. Pure."""

from typing import Final

BURST_MS: Final = 100
"""What was left unused for longer is lost. Kafka measures over eleven seconds and may send all of
them at once; here others wait for the same loop."""


class TokenBucket:
    """Bytes may go while there are any; what goes beyond them is made up for before the next."""

    __slots__ = ("_bytes", "_filled_ms", "rate")

    def __init__(self, rate: int) -> None:
        """Begin full; `rate` is in bytes a second."""
        self.rate = rate
        self._bytes: float = rate * BURST_MS / 1000
        self._filled_ms = -1

    def delay_ms(self, now_ms: int) -> int:
        """Return how long until bytes may go; 0 if they may now."""
        if self._filled_ms < 0:
            self._filled_ms = now_ms
        gained = (now_ms - self._filled_ms) * self.rate / 1000
        self._bytes = min(self._bytes + gained, max(self.rate * BURST_MS / 1000, 1.0))
        self._filled_ms = now_ms
        if self._bytes > 0:
            return 0
        return int(-self._bytes * 1000 / self.rate) + 1

    def take(self, size: int) -> None:
        """Count bytes that go."""
        self._bytes -= size
