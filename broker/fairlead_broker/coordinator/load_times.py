"""How long it took to load partitions; the metrics page reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LoadTimes:
    """Counted since the process started; times in milliseconds."""

    loads: int = 0
    sum_ms: int = 0
    max_ms: int = 0

    def add(self, took_ms: int) -> None:
        """Count a partition that was loaded."""
        self.loads += 1
        self.sum_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)
