"""What a job needs next: a pure function of its spec, its status and its driver's pod.

| pod | status | then |
|---|---|---|
| none | never run, or the next run is due | StartDriver |
| none | a run without an end | RecordEnd: the pod was lost |
| ended | end not recorded | RecordEnd |
| exists | suspended, changed, of an older or stopped run, or its cluster hibernates | StopDriver |
| ended | recorded, and another run is due | StopDriver, then as above |
| runs | | Watch |

Each step may be repeated. The number of a run is written into the status before its pod is created,
and a pod has the same name in every run: there are never two drivers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from fairlead_model.resources.stream_job import RestartPolicy, StreamJobSpec
from fairlead_operator.conditions import api_time
from fairlead_operator.schedule import next_time
from fairlead_operator.stream_jobs.driver import DriverPod

Obstacle: TypeAlias = tuple[str, str]
"""Reason and message why no driver can be created."""
CLUSTER_HIBERNATED: Final = "ClusterHibernated"
ASLEEP_LOOK: Final = timedelta(seconds=5)
"""How often a job checks whether its cluster is awake."""
SECRET_LOOK: Final = timedelta(seconds=10)
"""How often a job that waits for a Secret reads it: other owners' Secrets are not watched."""
OVERDUE: Final = timedelta(seconds=30)
"""How long after its time a pod may still be ending before the job says so: its node is gone."""
RESTARTING: Final = "Restarting"
STEADY_S: Final = 600.0
"""A driver that ran for so long ends a series of failures."""


@dataclass(frozen=True, slots=True)
class JobSight:
    """The observations of a job."""

    now: datetime
    job_hash: str
    driver: DriverPod | None
    obstacle: Obstacle | None = None
    """Why no driver can be created; a running driver is left alone, unless the job has changed."""
    next_run_at: datetime | None = None
    """When the schedule is next due after the last start; None without a schedule."""
    is_cluster_asleep: bool = False
    """The brokers hibernate: a running driver has no broker to connect to."""
    is_secret_awaited: bool = False
    """The obstacle is a Secret, which no watch reports."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Do nothing now; check again at `until`, or when something changes."""

    phase: str
    reason: str
    message: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Create the pod of a run, and everything that it needs."""

    run: int


@dataclass(frozen=True, slots=True)
class StopDriver:
    """Delete the pod; its executors are deleted with it."""

    run: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RecordEnd:
    """Record how a run ended."""

    run: int
    outcome: Literal["Succeeded", "Failed"]
    is_infrastructure: bool
    message: str
    has_run: bool = True
    """Whether its pod ever existed: `Never` does not apply to a run that was not created."""
    ended_at: datetime | None = None
    """None if unknown: then it is the time at which it is recorded."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Ask the running driver for its progress."""


Step: TypeAlias = Hold | StartDriver | StopDriver | RecordEnd | Watch


def decide_job_step(spec: StreamJobSpec, status: Mapping[str, Any], sight: JobSight) -> Step:
    """Return the next step."""
    driver, run = sight.driver, int(status.get("run") or 0)
    if driver is not None:
        return _with_driver(spec, status, sight, driver, run)
    if spec.suspend:
        return Hold("Suspended", "Suspended", "suspend is true; the checkpoint is kept")
    if run and not _is_ended(status, run):
        has_run = status.get("phase") != "Starting" or bool(status.get("driver"))
        return RecordEnd(run, "Failed", True, "the driver's pod is gone", has_run)
    return _next_run(spec, status, sight)


def leads_to_driver(step: Step) -> bool:
    """Tell whether a step creates a driver, or deletes one for its successor."""
    return isinstance(step, StartDriver) or (
        isinstance(step, StopDriver) and step.reason == RESTARTING
    )


def _with_driver(
    spec: StreamJobSpec, status: Mapping[str, Any], sight: JobSight, driver: DriverPod, run: int
) -> Step:
    if driver.is_terminating:
        return _await_end(driver, sight.now)
    is_over = driver.run == run and driver.has_ended
    if is_over and not _is_ended(status, run):
        # Before any reason to stop it: a run that was stopped continues with the next one.
        outcome: Literal["Succeeded", "Failed"] = "Succeeded" if driver.is_success else "Failed"
        return RecordEnd(
            run,
            outcome,
            driver.is_infrastructure_failure,
            driver.describe_end(),
            ended_at=read_time(driver.ended_at),
        )
    if spec.suspend:
        return StopDriver(driver.run, "Suspended", "the job was suspended")
    if sight.is_cluster_asleep and not driver.has_ended:
        return StopDriver(driver.run, CLUSTER_HIBERNATED, "the LogCluster sleeps")
    if driver.run != run:
        return StopDriver(driver.run, "Superseded", f"the driver is of run {driver.run}, not {run}")
    if not driver.has_ended:
        if driver.job_hash != sight.job_hash:
            # Without its LogCluster or its User, a job also counts as changed.
            why = sight.obstacle or ("SpecChanged", "the job was changed")
            return StopDriver(run, *why)
        if status.get("stoppedRun") == run:
            # An operator died before it deleted the pod; no end of this run would be recorded.
            return StopDriver(run, "Stopping", "the driver was to end, and a new one takes over")
        return Watch()
    following = _next_run(spec, status, sight)
    if isinstance(following, StartDriver):
        return StopDriver(run, RESTARTING, "the pod of the last run makes room for the next")
    return following


def _await_end(driver: DriverPod, now: datetime) -> Hold:
    """Wait for a pod that is terminating: while it is there, no other driver can have its name."""
    ends_by = read_time(driver.ends_by)
    if ends_by is None or now < ends_by + OVERDUE:
        overdue = None if ends_by is None else ends_by + OVERDUE
        return Hold("Stopping", "Stopping", "the driver is ending", overdue)
    message = (
        f"the driver's pod should have ended by {api_time(ends_by)}, and no other driver can begin "
        "while it is there: if its node is gone for good, remove it by "
        f"`kubectl delete pod {driver.name} --grace-period=0 --force`"
    )
    return Hold("Stopping", "NotEnding", message)


def _is_ended(status: Mapping[str, Any], run: int) -> bool:
    return run in (status.get("endedRun"), status.get("stoppedRun"))


def _next_run(spec: StreamJobSpec, status: Mapping[str, Any], sight: JobSight) -> Step:
    """Return when the next driver is due: now, later, or never. No driver runs."""
    due = _due(spec, status, sight)
    if isinstance(due, StartDriver) and sight.obstacle is not None:
        look = ASLEEP_LOOK if sight.is_cluster_asleep else None
        look = SECRET_LOOK if sight.is_secret_awaited else look
        return Hold("Pending", *sight.obstacle, None if look is None else sight.now + look)
    return due


def _due(spec: StreamJobSpec, status: Mapping[str, Any], sight: JobSight) -> Step:
    run = int(status.get("run") or 0)
    start = StartDriver(run + 1)
    is_own_end = run > 0 and status.get("endedRun") == run and status.get("stoppedRun") != run
    is_changed = status.get("jobHash") != sight.job_hash
    if not is_own_end and run > 0:
        # It was suspended or changed while it ran: it continues where it was.
        return start
    if run == 0 or (is_changed and sight.next_run_at is None):
        return _at_schedule(start, sight)
    if status.get("outcome") == "Failed":
        retry_at = read_time(status.get("retryAt"))
        if retry_at is not None:
            if sight.now >= retry_at:
                return start
            message = f"failed; tried again at {api_time(retry_at)}: {status.get('lastError', '')}"
            return Hold("BackingOff", "BackingOff", message, retry_at)
        if sight.next_run_at is None:
            return Hold("Failed", "Failed", str(status.get("lastError") or "the job failed"))
        return _at_schedule(start, sight)
    if spec.restart_policy.type == "Always":
        return start
    if sight.next_run_at is None:
        return Hold("Succeeded", "Succeeded", "the job has ended")
    return _at_schedule(start, sight)


def find_next_run(job: Mapping[str, Any], spec: StreamJobSpec, now: datetime) -> datetime | None:
    """Return the first time of the schedule after the last run; times during that run are skipped.

    ScheduleError for a schedule that cannot be parsed.
    """
    if spec.schedule is None:
        return None
    status = job.get("status") or {}
    run = [read_time(status.get(name)) for name in ("startedAt", "endedAt")]
    # The end is by the clock of its node, which may lag behind the clock of the start.
    last = max((each for each in run if each is not None), default=None)
    made = read_time(job["metadata"].get("creationTimestamp"))
    return next_time(spec.schedule, last or made or now)


def _at_schedule(start: StartDriver, sight: JobSight) -> Step:
    due = sight.next_run_at
    if due is None or sight.now >= due:
        return start
    return Hold("Waiting", "Scheduled", f"the next run begins at {api_time(due)}", due)


def retry_time(
    policy: RestartPolicy,
    *,
    restarts_in_a_row: int,
    is_infrastructure: bool,
    now: datetime,
    has_run: bool = True,
) -> datetime | None:
    """Return when a failed run is tried again; None for never. `restarts_in_a_row` includes it."""
    if policy.type == "Never" and has_run:
        return None
    if policy.type == "OnInfrastructureFailure" and not is_infrastructure:
        return None
    if policy.retries is not None and restarts_in_a_row > policy.retries:
        return None
    doublings = min(restarts_in_a_row - 1, 30)
    delay_s = min(policy.backoff_seconds * 2**doublings, policy.backoff_maximum_seconds)
    return now + timedelta(seconds=delay_s)


def read_time(text: Any) -> datetime | None:
    """Parse a time of the status; None if it has none."""
    if not isinstance(text, str) or not text:
        return None
    return datetime.fromisoformat(text).astimezone(UTC)
