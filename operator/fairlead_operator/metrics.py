"""The metrics of the kopf process; each process has one set."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead_operator.events import EventCounters

_KINDS: Final = ("kind",)


class ReignCounters(Collector):
    """Counters that the parts of a reign keep themselves."""

    def __init__(
        self,
        *,
        events: EventCounters,
        topic_statuses: Callable[[], int],
        user_statuses: Callable[[], int],
    ) -> None:
        self._events = events
        self._topic_statuses = topic_statuses
        self._user_statuses = user_statuses

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        events = CounterMetricFamily(
            "fairlead_operator_events", "Events, by what became of them.", labels=["outcome"]
        )
        events.add_metric(["written"], self._events.written)
        events.add_metric(["failed"], self._events.failed)
        yield events
        yield CounterMetricFamily(
            "fairlead_operator_topic_statuses_written",
            "Statuses of Topics written.",
            self._topic_statuses(),
        )
        yield CounterMetricFamily(
            "fairlead_operator_user_statuses_written",
            "Statuses of Users written.",
            self._user_statuses(),
        )


class OperatorMetrics:
    """Counters of reconciles and writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "fairlead_operator_reconciles",
            "Passes over a resource, by how they ended.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "fairlead_operator_reconcile_seconds",
            "How long passes over a resource took.",
            _KINDS,
            registry=self.registry,
        )
        self.in_progress_since = Gauge(
            "fairlead_operator_reconcile_in_progress_start_time_seconds",
            "Unix time at which the oldest unfinished pass began; 0 where there is none.",
            _KINDS,
            registry=self.registry,
        )
        self.writes = Counter(
            "fairlead_operator_writes",
            "Writes to the API server, by kind of the object and verb.",
            ("kind", "verb"),
            registry=self.registry,
        )
        self.is_active = Gauge(
            "fairlead_operator_active",
            "1 while this pod's controller holds the Lease.",
            registry=self.registry,
        )
        self.controller_reachable = Gauge(
            "fairlead_operator_controller_reachable",
            "1 while the controller answers on its socket.",
            registry=self.registry,
        )
        self.api_failing_since = Gauge(
            "fairlead_operator_api_failing_since_seconds",
            "Unix time since which the API server gives no proper answer; 0 while it does.",
            registry=self.registry,
        )
        self.informer_age_s = Gauge(
            "fairlead_operator_informer_age_seconds",
            "Seconds since the last proof that nothing was missed.",
            _KINDS,
            registry=self.registry,
        )
        self._running: dict[str, list[tuple[float, float]]] = {}
        """Passes by kind: when they began, as monotonic time and as wall time."""

    @contextmanager
    def reconciling(self, kind: str) -> Iterator[None]:
        """Count a pass, as an error if it raises."""
        # Wall time is what Prometheus compares with; how long a pass lasts no set clock may change.
        begun_s, started_s = time.time(), time.monotonic()
        running = self._running.setdefault(kind, [])
        running.append((started_s, begun_s))
        self._tell_oldest(kind)
        outcome = "error"
        try:
            yield
            outcome = "ok"
        finally:
            running.remove((started_s, begun_s))
            self._tell_oldest(kind)
            self.reconciles.labels(kind, outcome).inc()
            self.reconcile_seconds.labels(kind).observe(time.monotonic() - started_s)

    def _tell_oldest(self, kind: str) -> None:
        _, begun_s = min(self._running[kind], default=(0.0, 0.0))
        self.in_progress_since.labels(kind).set(begun_s)

    def oldest_pass_s(self) -> float:
        """Return for how long the oldest unfinished pass has lasted."""
        now_s = time.monotonic()
        started = [min(running)[0] for running in self._running.values() if running]
        return max((now_s - each for each in started), default=0)
