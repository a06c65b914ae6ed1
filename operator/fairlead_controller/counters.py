"""What a controller counts in one reign, for Prometheus.

`Controller`, `MeasuredStore` and `SessionServer` add to the counters on the event loop;
`metrics/cluster_families.py` reads them. They count changes that became durable, not attempts, and
the decisions that were stopped because they would have broken a rule.
"""

from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import Final

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From a fast write of the file store to a request after which the API server counts as
unavailable."""


class TimeHistogram:
    """A histogram of times; each counts in the first bucket whose bound it does not exceed."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """Return the number of times."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by bound, in Prometheus' form."""
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class ControllerMetrics:
    """Counters of one reign."""

    def __init__(self) -> None:
        self.decisions: Counter[str] = Counter()
        """By the name of the event, such as `AlterPartition`."""
        self.refusals: Counter[str] = Counter()
        """Decisions that refused the request, by the name of the event."""
        self.broken_decisions: Counter[str] = Counter()
        """Decisions, or partitions of them, that would have broken a rule of the records and were
        stopped, by the name of the event."""
        self.leader_changes = 0
        """Partitions that got another leader, or none."""
        self.elections = TimeHistogram()
        """Decisions that changed leaders: from the event until all brokers were sent the change."""
        self.unclean_elections = 0
        """Leaders that may lack acknowledged records."""
        self.store_writes = TimeHistogram()
        """Writes of one or more tables at once."""
        self.store_outcomes: Counter[str] = Counter()
        """Tables written, by `WriteOutcome`; `error` if the store returned no outcome."""
        self.store_reads = TimeHistogram()
        """Reads of one table or of all."""
