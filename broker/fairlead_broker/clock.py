"""The broker's two clocks: wall time for records, monotonic time for deadlines.

Everything below the shells takes `now_ms` as an argument; the shells ask one `Clock`, so that
tests and simulations own the time of a whole process.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What a shell asks for the time."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch; may step when the host's clock is set."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an unknown start; never steps back: for deadlines and intervals."""
        ...


class SystemClock:
    """The host's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that a test moves."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, duration_ms: int) -> None:
        """Let time pass on both clocks."""
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms
