"""The metrics of jobs: one series per job and figure."""

from collections import Counter as Counts
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

_JOB: Final = ("namespace", "job")


class StreamJobMetrics:
    """The metrics of one process; tests pass their own registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._phases = Gauge(
            "fairlead_stream_jobs", "StreamJobs by phase.", ["phase"], registry=registry
        )
        self._lag = Gauge(
            "fairlead_stream_job_lag_records",
            "Records in a job's topics that it has not taken yet.",
            _JOB,
            registry=registry,
        )
        self._rate = Gauge(
            "fairlead_stream_job_rows_per_second",
            "Records that a job reads a second, in its last batch.",
            _JOB,
            registry=registry,
        )
        self._restarts = Gauge(
            "fairlead_stream_job_restarts",
            "Drivers of a job that ended on their own and were replaced.",
            _JOB,
            registry=registry,
        )
        self._ends = Counter(
            "fairlead_stream_job_runs_ended_total",
            "Runs that ended on their own, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.writes = Counter(
            "fairlead_stream_job_status_writes_total",
            "Statuses of StreamJobs that were written.",
            registry=registry,
        )

    def ended(self, outcome: str) -> None:
        """Count a run that ended by itself."""
        self._ends.labels(outcome).inc()

    def show(self, jobs: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Show the present statuses of jobs; remove deleted jobs."""
        gauges = {"lag": self._lag, "rowsPerSecond": self._rate, "restarts": self._restarts}
        for gauge in (self._phases, *gauges.values()):
            gauge.clear()
        phases: Counts[str] = Counts()
        for (namespace, name), job in jobs.items():
            status = job.get("status") or {}
            phases[str(status.get("phase") or "Pending")] += 1
            for field, gauge in gauges.items():
                if status.get(field) is not None:
                    gauge.labels(namespace, name).set(status[field])
        for phase, count in phases.items():
            self._phases.labels(phase).set(count)
