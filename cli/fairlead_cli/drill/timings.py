"""How long one fault was felt, and the distribution over many. Pure. Milliseconds, rounded up."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

P50, P99 = 0.50, 0.99


@dataclass(slots=True)
class RunTimings:
    """One fault. None: it did not happen, or was not seen."""

    target: list[str]
    partitions_led: int = 0
    partitions_hit: int = 0
    """Those that it led or was an in-sync follower of: none can acknowledge without it at first."""
    detection_ms: int | None = None
    """Until the controller was seen to know: it showed the broker as dead, or moved a leader."""
    election_ms: int | None = None
    """Until a broker told clients of new leaders for all partitions that it led."""
    recovery_ms: int | None = None
    """Until the first new acknowledgement on every partition that was hit."""
    client_recovery_ms: int | None = None
    """The same, as a librdkafka producer with default settings saw it."""
    longest_gap_ms: int | None = None
    """Longest time without an acknowledgement on any partition, until all was well again."""
    longest_gap_began_ms: int | None = None
    """When it began, after the fault; negative before it."""
    longest_gap_partition: int | None = None
    commit_before_p99_ms: int | None = None
    """99th percentile of the time that a record took to be committed, before the fault."""
    commit_p99_ms: int | None = None
    """The same while the fault lasted."""
    left_isr_ms: int | None = None
    """Until the broken brokers were seen outside every in-sync set that they followed in."""
    fast_again_ms: int | None = None
    """Until the last slow commit where they follow: above 50 ms and twice the p99 of before."""
    healed_ms: int | None = None
    """From the end of the fault until every replica was in sync again."""
    replaced: list[str] = field(default_factory=list)
    """Which of them did not live to the end of a fault that lasts: others took their place."""
    forecast: dict[str, int] | None = None
    """How many partitions lose what, as foretold right before the fault."""
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For `-o json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of one timing over the runs that have it."""

    count: int
    p50: int
    p99: int
    max: int


TIMINGS = {
    "detection_ms": "detection",
    "election_ms": "election",
    "recovery_ms": "recovery",
    "client_recovery_ms": "recovery, librdkafka",
    "longest_gap_ms": "longest gap",
    "commit_before_p99_ms": "commit p99, before",
    "commit_p99_ms": "commit p99, during the fault",
    "left_isr_ms": "out of the in-sync set",
    "fast_again_ms": "commits fast again",
    "healed_ms": "healed",
}


def to_ms(seconds: float | None) -> int | None:
    """Return whole milliseconds, never flattering."""
    return None if seconds is None else math.ceil(seconds * 1000)


def percentile(values: list[int], fraction: float) -> int:
    """Return nearest rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def summarize(runs: Iterable[RunTimings]) -> dict[str, Distribution]:
    """Return a distribution for each timing that any run has."""
    everything = list(runs)
    summary = {}
    for name in TIMINGS:
        values = [value for run in everything if (value := getattr(run, name)) is not None]
        if values:
            summary[name] = Distribution(
                len(values), percentile(values, P50), percentile(values, P99), max(values)
            )
    return summary
