"""A rate in bytes a second, kept to within a tenth of a second. Pure."""

from typing import Final

BURST_MS: Final = 100
"""Bytes that are not used for longer are lost. Kafka measures over eleven seconds and may send all
of their bytes at once; here other work waits for the same event loop."""


class TokenBucket:
    """Bytes may be sent while the bucket has any; what exceeds them delays the next bytes."""

    __slots__ = ("_bytes", "_filled_ms", "rate")

    def __init__(self, rate: int) -> None:
        """Begin full; `rate` is in bytes a second."""
        self.rate = rate
        self._bytes: float = rate * BURST_MS / 1000
        self._filled_ms = -1

    def delay_ms(self, now_ms: int) -> int:
        """Return how long bytes have to wait; 0 if they may be sent now."""
        if self._filled_ms < 0:
            self._filled_ms = now_ms
        gained = (now_ms - self._filled_ms) * self.rate / 1000
        self._bytes = min(self._bytes + gained, max(self.rate * BURST_MS / 1000, 1.0))
        self._filled_ms = now_ms
        if self._bytes > 0:
            return 0
        return int(-self._bytes * 1000 / self.rate) + 1

    def take(self, size: int) -> None:
        """Count bytes that are sent."""
        self._bytes -= size
