"""The metrics of rebalances; none has a label that grows with the cluster."""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from fairlead_operator.rebalances.measured_load import MeasuredLoad


class RebalanceMetrics:
    """The metrics of one process; tests pass their own registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._phases = Gauge(
            "fairlead_rebalances", "Rebalances by mode and phase.", ["mode", "phase"],
            registry=registry,
        )  # fmt: skip
        self._rounds = Counter(
            "fairlead_rebalance_rounds_total",
            "Rounds of the mode Auto that have ended, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._bytes = Counter(
            "fairlead_rebalance_round_bytes_total",
            "Bytes that the plans of these rounds copied.",
            registry=registry,
        )
        self._measurements = Counter(
            "fairlead_rebalance_measurements_total",
            "Times that brokers were asked what they hold; partial if one did not answer.",
            ["outcome"],
            registry=registry,
        )

    def measured(self, load: MeasuredLoad) -> None:
        """Count a measurement."""
        self._measurements.labels("whole" if load.is_whole else "partial").inc()

    def round_ended(self, outcome: str, plan: Mapping[str, Any]) -> None:
        """Count a round."""
        self._rounds.labels(outcome).inc()
        self._bytes.inc(plan.get("bytes", 0))

    def show(self, rebalances: Iterable[Mapping[str, Any]]) -> None:
        """Show the progress of rebalances."""
        counts = Counts(
            (
                str((each.get("spec") or {}).get("mode") or "Propose"),
                str((each.get("status") or {}).get("phase") or "Pending"),
            )
            for each in rebalances
        )
        self._phases.clear()
        for (mode, phase), count in counts.items():
            self._phases.labels(mode, phase).set(count)
