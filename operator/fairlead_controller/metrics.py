"""What a controller counts in one reign, for Prometheus.

`Controller`, `MeasuredStore` and `SessionServer` add to it on the loop; `metric_families` reads it.
Everything here is about what became durable, not about what was attempted.
"""

from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import Final

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Between a write of the file store and an API server that is about to be given up."""


class TimeHistogram:
    """Times by the smallest bound that they do not exceed; the last count is of those above all."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Give cumulative counts by bound, as Prometheus wants them."""
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class ControllerMetrics:
    """Counters of one reign."""

    def __init__(self) -> None:
        self.decisions: Counter[str] = Counter()
        """By the name of the event, such as `AlterPartition`."""
        self.refusals: Counter[str] = Counter()
        """Decisions that refused what was asked for, by the name of the event."""
        self.leader_changes = 0
        """Partitions that got another leader, or none."""
        self.elections = TimeHistogram()
        """Decisions that changed leaders: from the event until everybody was told."""
        self.unclean_elections = 0
        """Leaders that may lack acknowledged records."""
        self.store_writes = TimeHistogram()
        """Writes of one or more tables at once."""
        self.store_outcomes: Counter[str] = Counter()
        """Tables written, by `WriteOutcome`; `error` where the store gave none."""
        self.store_reads = TimeHistogram()
        """Reads of one table or of all."""
