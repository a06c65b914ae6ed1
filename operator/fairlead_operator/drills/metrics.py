"""The metrics of drills."""

from datetime import datetime
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

RESULTS: Final = ("passed", "failed", "skipped")
RECOVERY_BUCKETS_S: Final = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 4, 6, 10, 30)


class DrillMetrics:
    """The metrics of one process; tests pass their own registry."""

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
        self._last_result = Gauge(
            "fairlead_drill_scheduled_last_result",
            "1 for what came of a scheduled drill when it was due last, 0 for the other results.",
            ["namespace", "drill", "result"],
            registry=registry,
        )
        self._due = Gauge(
            "fairlead_drill_scheduled_due_timestamp_seconds",
            "Unix time at which a scheduled drill is due: in the past if it does not begin.",
            ["namespace", "drill"],
            registry=registry,
        )

    def note_schedule(
        self, namespace: str, drill: str, *, verdict: str, due: datetime | None
    ) -> None:
        """Show a scheduled drill: its last verdict, if any, and when it is due; None for never."""
        if verdict:
            for result in RESULTS:
                is_it = result == verdict.lower()
                self._last_result.labels(namespace, drill, result).set(float(is_it))
        if due is not None:
            self._due.labels(namespace, drill).set(due.timestamp())
        else:
            self._due.remove_by_labels({"namespace": namespace, "drill": drill})

    def forget_schedule(self, namespace: str, drill: str) -> None:
        """Stop showing a drill."""
        labels = {"namespace": namespace, "drill": drill}
        self._last_result.remove_by_labels(labels)
        self._due.remove_by_labels(labels)
