"""The metrics of drills."""

from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

RECOVERY_BUCKETS_S: Final = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 4, 6, 10, 30)


class DrillMetrics:
    """The metrics of one process; a registry of its own is for tests."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.recovery = Histogram(
            "fairlead_drill_recovery_seconds",
            "From a fault until every partition hit acknowledged something new, by run.",
            ["fault", "target"],
            buckets=RECOVERY_BUCKETS_S,
            registry=registry,
        )
        self.finished = Counter(
            "fairlead_drills_total",
            "Drills that have come to an end.",
            ["result"],
            registry=registry,
        )
        self.deferred = Counter(
            "fairlead_drill_deferred_total",
            "Drills that had to wait or were refused, by reason.",
            ["gate"],
            registry=registry,
        )
