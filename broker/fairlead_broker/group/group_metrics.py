"""Counters of the coordinator; the metrics page reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupMetrics:
    """Counters since the process started."""

    offset_commits: int = 0
    """Offsets that were appended for OffsetCommit."""
    offset_expirations: int = 0
    offset_deletions: int = 0
    """Offsets removed by clients, with their group or with their topic."""
    broken_decisions: int = 0
    """Records and commits that would have broken a rule, and were not written."""
