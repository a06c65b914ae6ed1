"""What the coordinator counts; the metrics page reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupMetrics:
    """Counters since the process started; times in milliseconds."""

    offset_commits: int = 0
    """Offsets that were appended for OffsetCommit."""
    offset_expirations: int = 0
    offset_deletions: int = 0
    """Offsets removed by clients, with their group or with their topic."""
    loads: int = 0
    load_time_ms_sum: int = 0
    load_time_ms_max: int = 0

    def loaded(self, took_ms: int) -> None:
        """A partition was read and is served now."""
        self.loads += 1
        self.load_time_ms_sum += took_ms
        self.load_time_ms_max = max(self.load_time_ms_max, took_ms)
