"""The measurements of one run, their medians, and the verdict against each target."""

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from fairlead_bench.loads.load_process import Sample
from fairlead_bench.report.metrics import METRICS, Better, Metric

OURS, KAFKA, LIMIT = "fairlead", "kafka", "limit"


@dataclass(frozen=True, slots=True)
class Spread:
    """Median of the repetitions, with the extremes."""

    median: float
    low: float
    high: float
    count: int


def spread_of(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))


@dataclass
class Results:
    """Samples by (subject, scenario) and plain values by (subject, metric)."""

    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    values: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def spread(self, subject: str, metric: Metric) -> Spread | None:
        if metric.read is None:
            values = self.values.get((subject, metric.key), [])
        else:
            read = (metric.read(one) for one in self.samples.get((subject, metric.scenario), []))
            values = [value for value in read if value is not None]
        return spread_of(values) if values else None

    def is_client_bound(self, subject: str, scenario: str) -> bool:
        """Whether the client was saturated in at least half of the repetitions."""
        samples = self.samples.get((subject, scenario), [])
        return bool(samples) and 2 * sum(one.is_client_bound for one in samples) >= len(samples)

    def ratio(self, metric: Metric) -> float | None:
        ours, kafka = self.spread(OURS, metric), self.spread(KAFKA, metric)
        if ours is None or kafka is None or kafka.median == 0:
            return None
        return ours.median / kafka.median

    def meets_target(self, metric: Metric) -> bool | None:
        """Return None if there is no target or nothing to compare."""
        ours = self.spread(OURS, metric)
        target = metric.target
        if target is None or ours is None:
            return None
        value = self.ratio(metric) if target.is_ratio else ours.median
        if value is None:
            return None
        if target.or_client_bound and self.is_client_bound(OURS, metric.scenario):
            return True
        return value <= target.bound if metric.better is Better.LOWER else value >= target.bound

    def as_json(self) -> list[dict[str, Any]]:
        """Return a row for each metric that this run measured."""
        rows = [self._row(metric) for metric in METRICS]
        return [row for row in rows if any(subject in row for subject in (OURS, KAFKA, LIMIT))]

    def _row(self, metric: Metric) -> dict[str, Any]:
        row: dict[str, Any] = {
            "metric": metric.key,
            "unit": metric.unit,
            "better": metric.better.value,
            "target": str(metric.target) if metric.target else None,
            "ratio": self.ratio(metric),
            "meets_target": self.meets_target(metric),
        }
        for subject in (OURS, KAFKA, LIMIT):
            spread = self.spread(subject, metric)
            if spread is not None:
                row[subject] = {
                    "median": spread.median,
                    "min": spread.low,
                    "max": spread.high,
                    "repetitions": spread.count,
                    "client_bound": self.is_client_bound(subject, metric.scenario),
                }
        return row
