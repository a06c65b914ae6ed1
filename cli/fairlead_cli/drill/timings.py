"""How long the effects of a fault lasted, and the distribution. Pure. Milliseconds, rounded up."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

P50, P99 = 0.50, 0.99


@dataclass(slots=True)
class RunTimings:
    """The timings of one fault. None: it did not happen, or was not seen."""

    target: list[str]
    partitions_led: int = 0
    partitions_hit: int = 0
    """Partitions that the broker led or followed in sync: at first none can acknowledge."""
    detection_ms: int | None = None
    """Until the controller was seen to know: it reported the broker as dead, or moved a leader."""
    election_ms: int | None = None
    """Until a broker reported new leaders for all partitions that the faulty broker led."""
    recovery_ms: int | None = None
    """Until the first new acknowledgement on every affected partition."""
    client_recovery_ms: int | None = None
    """The same for a librdkafka producer with default settings."""
    longest_gap_ms: int | None = None
    """Longest time without an acknowledgement on any partition, until all was well again."""
    longest_gap_began_ms: int | None = None
    """When that gap began, relative to the fault; negative before it."""
    longest_gap_partition: int | None = None
    commit_before_p99_ms: int | None = None
    """99th percentile of the time of a commit, before the fault."""
    commit_p99_ms: int | None = None
    """The same during the fault."""
    left_isr_ms: int | None = None
    """Until the faulty brokers were seen outside every ISR in which they followed."""
    fast_again_ms: int | None = None
    """Until the last slow commit where they follow: above 50 ms and twice the p99 before."""
    healed_ms: int | None = None
    """From the end of the fault until every replica was in sync again."""
    replaced: list[str] = field(default_factory=list)
    """Processes that ended during a fault that lasts, and were replaced."""
    forecast: dict[str, int] | None = None
    """Number of partitions for each kind of loss, as forecast right before the fault."""
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the value for `-o json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of one timing over the runs that have it."""

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
    """Return whole milliseconds, rounded up."""
    return None if seconds is None else math.ceil(seconds * 1000)


def percentile(values: list[int], fraction: float) -> int:
    """Return the percentile by nearest rank, that is, a measured value."""
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
