"""A job's status while it is changed: phase, conditions and figures change together. Pure."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fairlead_model.resources.stream_job import RestartPolicy
from fairlead_operator.conditions import api_time, set_condition, shortened
from fairlead_operator.resources.stream_job import ERROR_LENGTH_MAX, QUERIES_MAX
from fairlead_operator.stream_jobs.steps import STEADY_S, RecordEnd, read_time, retry_time

FINAL: Final = frozenset({"Succeeded", "Failed"})
CLUSTER_HIDDEN: Final = "ClusterHidden"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One streaming query, as the driver reports it."""

    id: str
    name: str
    batch_id: int | None
    rows_per_second: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What a driver reports about itself."""

    queries: tuple[QueryProgress, ...]
    error: str = ""


class JobStatus:
    """A copy of the job's status; `values` is what will be written."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._before: dict[str, Any] = dict(job.get("status") or {})
        self.values: dict[str, Any] = deepcopy(self._before)
        self._generation = int(job["metadata"].get("generation") or 1)

    @property
    def phase(self) -> str:
        """The phase of the job."""
        return str(self.values.get("phase") or "Pending")

    def hold(self, phase: str, reason: str, message: str, now: datetime) -> None:
        """Report what the job waits for."""
        self._enter(phase, reason, message, now)
        if phase != "Stopping":
            self.values["driver"] = ""
            self.values["executors"] = 0
            self.values["rowsPerSecond"] = 0

    def hide(self, message: str, now: datetime) -> None:
        """Report that the job's LogCluster may not be read; everything else stays as it was."""
        self.values["observedGeneration"] = self._generation
        self.values["conditions"] = set_condition(
            self.values.get("conditions") or (),
            "Ready",
            None,
            CLUSTER_HIDDEN,
            message,
            generation=self._generation,
            now=now,
        )

    def start(self, run: int, job_hash: str, now: datetime) -> None:
        """Begin a run; earlier waits are over, and its driver has not been seen yet."""
        for name in ("retryAt", "nextRunAt", "endedAt", "driver"):
            self.values[name] = None
        self.values |= {"run": run, "jobHash": job_hash, "startedAt": api_time(now)}
        self._enter("Starting", "Starting", f"driver {run} is being made", now)

    def stop(self, run: int, reason: str, message: str, now: datetime) -> None:
        """End a run on purpose, which is no failure; if it has ended, only the pod is deleted."""
        if run != self.values.get("endedRun"):
            self.values["stoppedRun"] = max(run, int(self.values.get("stoppedRun") or 0))
        self._enter("Stopping", reason, message, now)

    def end(self, step: RecordEnd, policy: RestartPolicy, now: datetime) -> None:
        """Note how a run ended by itself, and when it is tried again."""
        self.values |= {
            "endedRun": step.run,
            "outcome": step.outcome,
            "endedAt": api_time(step.ended_at or now),
            "retryAt": None,
        }
        if step.outcome == "Succeeded":
            self.values |= {"restartsInARow": 0, "lastError": ""}
            return
        self.values["lastError"] = shortened(step.message, ERROR_LENGTH_MAX)
        row = self._row(now) + 1
        retry_at = retry_time(
            policy,
            restarts_in_a_row=row,
            is_infrastructure=step.is_infrastructure,
            now=now,
            has_run=step.has_run,
        )
        self.values["restartsInARow"] = row
        if retry_at is not None:
            self.values["retryAt"] = api_time(retry_at)
            self.values["restarts"] = int(self.values.get("restarts") or 0) + 1

    def run_on(
        self,
        progress: JobProgress | None,
        *,
        driver: str,
        executors: int,
        problem: str,
        now: datetime,
    ) -> None:
        """Report the progress of a running driver; None if it does not answer yet."""
        self.values |= {"driver": driver, "executors": executors}
        if progress is None:
            self._enter("Starting", "Starting", problem or "the driver does not answer yet", now)
            return
        self._take_queries(progress.queries)
        message = f"{len(progress.queries)} queries" if progress.queries else "the program runs"
        self._enter("Running", "Running", message, now)

    def plan(self, next_run_at: datetime | None) -> None:
        """Report when the schedule is due."""
        self.values["nextRunAt"] = None if next_run_at is None else api_time(next_run_at)

    def patch(self) -> dict[str, Any]:
        """Return the fields that differ from those of the object; None removes one."""
        values = {name: value for name, value in self.values.items() if value not in (None, "", [])}
        changed = {name: value for name, value in values.items() if self._before.get(name) != value}
        return changed | {name: None for name in self._before if name not in values}

    def is_only_figures(self, patch: Mapping[str, Any]) -> bool:
        """Tell whether a patch has nothing but numbers that change all the time."""
        return patch.keys() <= {"batchId", "rowsPerSecond", "lag", "queries"}

    def _row(self, now: datetime) -> int:
        started = read_time(self.values.get("startedAt"))
        if started is not None and (now - started).total_seconds() >= STEADY_S:
            return 0
        return int(self.values.get("restartsInARow") or 0)

    def _take_queries(self, queries: Sequence[QueryProgress]) -> None:
        self.values["queries"] = [
            {
                name: value
                for name, value in (
                    ("id", query.id),
                    ("name", query.name),
                    ("batchId", query.batch_id),
                    ("rowsPerSecond", query.rows_per_second),
                    ("lag", query.lag),
                )
                if value not in (None, "")
            }
            for query in queries[:QUERIES_MAX]
        ]
        batches = [query.batch_id for query in queries if query.batch_id is not None]
        if batches:
            self.values["batchId"] = max(batches)
        lags = [query.lag for query in queries if query.lag is not None]
        self.values["lag"] = sum(lags) if lags else None
        self.values["rowsPerSecond"] = sum(query.rows_per_second or 0 for query in queries)

    def _enter(self, phase: str, reason: str, message: str, now: datetime) -> None:
        self.values["phase"] = phase
        self.values["observedGeneration"] = self._generation
        claims = (
            ("Ready", phase == "Running", reason),
            ("Complete", phase in FINAL, reason),
        )
        for type, holds, why in claims:
            self.values["conditions"] = set_condition(
                self.values.get("conditions") or (),
                type,
                holds,
                why,
                message,
                generation=self._generation,
                now=now,
            )
