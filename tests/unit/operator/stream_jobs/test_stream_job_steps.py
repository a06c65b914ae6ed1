from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead_model.resources.stream_job import RestartPolicy, StreamJobSpec
from fairlead_operator.schedule import ScheduleError, next_time
from fairlead_operator.stream_jobs.driver import DriverPod, read_driver
from fairlead_operator.stream_jobs.job_status import JobProgress, JobStatus, QueryProgress
from fairlead_operator.stream_jobs.names import DRIVER_CONTAINER, RUN_ANNOTATION
from fairlead_operator.stream_jobs.steps import (
    Hold,
    JobSight,
    RecordEnd,
    StartDriver,
    Step,
    StopDriver,
    Watch,
    decide_job_step,
    find_next_run,
    leads_to_driver,
    retry_time,
)

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
HASH = "abc"


def spec(**fields: Any) -> StreamJobSpec:
    body = {"application": {"file": "/job.py"}, "checkpoint": {"ephemeral": True}, **fields}
    return StreamJobSpec.from_manifest(
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "StreamJob",
            "metadata": {"name": "job"},
            "spec": body,
        }
    )


def driver(run: int = 1, phase: str = "Running", job_hash: str = HASH, **more: Any) -> DriverPod:
    return DriverPod(run=run, job_hash=job_hash, phase=phase, **more)


def decide(
    job: StreamJobSpec,
    status: dict[str, Any],
    pod: DriverPod | None,
    *,
    obstacle: tuple[str, str] | None = None,
    next_run_at: datetime | None = None,
    now: datetime = NOW,
    is_cluster_asleep: bool = False,
    is_secret_awaited: bool = False,
) -> Step:
    asleep, awaited = is_cluster_asleep, is_secret_awaited
    sight = JobSight(now, HASH, pod, obstacle, next_run_at, asleep, awaited)
    return decide_job_step(job, status, sight)


RUNNING = {"run": 1, "jobHash": HASH, "phase": "Running"}


def test_a_new_job_starts_its_first_driver() -> None:
    assert decide(spec(), {}, None) == StartDriver(1)


def test_a_job_without_its_cluster_waits_and_says_so() -> None:
    step = decide(spec(), {}, None, obstacle=("ClusterMissing", "there is no LogCluster demo"))
    assert step == Hold("Pending", "ClusterMissing", "there is no LogCluster demo")


def test_a_running_driver_is_left_alone_without_its_cluster() -> None:
    assert decide(spec(), RUNNING, driver(), obstacle=("ClusterMissing", "")) == Watch()


def test_a_job_that_waits_for_a_secret_looks_for_it_again_by_itself() -> None:
    missing = ("SecretNotFound", "there is none")
    step = decide(spec(), {}, None, obstacle=missing, is_secret_awaited=True)
    assert step == Hold("Pending", *missing, NOW + timedelta(seconds=10))
    # The pod of the last run stays for its log until the next one can begin.
    status = RUNNING | {"endedRun": 1, "outcome": "Failed", "retryAt": "2026-11-01T12:00:00Z"}
    ended = driver(phase="Failed")
    assert leads_to_driver(decide(spec(), status, ended))
    held = decide(spec(), status, ended, obstacle=missing, is_secret_awaited=True)
    assert isinstance(held, Hold)


def test_only_steps_towards_a_driver_need_a_secret() -> None:
    assert leads_to_driver(decide(spec(), {}, None))
    assert not leads_to_driver(decide(spec(), RUNNING, driver()))
    assert not leads_to_driver(decide(spec(suspend=True), RUNNING, driver()))


def test_suspending_stops_the_driver_and_then_holds() -> None:
    suspended = spec(suspend=True)
    assert isinstance(decide(suspended, RUNNING, driver()), StopDriver)
    ending = decide(suspended, RUNNING, driver(is_terminating=True))
    assert isinstance(ending, Hold) and ending.phase == "Stopping"
    held = decide(suspended, RUNNING | {"stoppedRun": 1}, None)
    assert isinstance(held, Hold) and held.phase == "Suspended"


def test_a_driver_that_does_not_end_is_told_of_with_what_to_do() -> None:
    """Its node is gone: Kubernetes keeps the pod, and said nothing of it."""
    pod = {
        "metadata": {
            "name": "job-driver",
            "annotations": {RUN_ANNOTATION: "1"},
            "deletionTimestamp": "2026-11-01T12:00:00Z",
        },
        "status": {"phase": "Running"},
    }
    ending = decide(spec(), RUNNING, read_driver(pod), now=NOW)
    assert ending == Hold(
        "Stopping", "Stopping", "the driver is ending", NOW + timedelta(seconds=30)
    )
    late = decide(spec(), RUNNING, read_driver(pod), now=NOW + timedelta(seconds=30))
    assert isinstance(late, Hold) and (late.phase, late.reason) == ("Stopping", "NotEnding")
    assert "should have ended by 2026-11-01T12:00:00Z" in late.message
    assert "kubectl delete pod job-driver --grace-period=0 --force" in late.message


def test_resuming_goes_on_with_the_next_run_without_waiting() -> None:
    status = RUNNING | {"stoppedRun": 1, "phase": "Suspended"}
    assert decide(spec(), status, None) == StartDriver(2)


@pytest.mark.parametrize("outcome", ["Succeeded", "Failed"])
def test_a_run_that_had_ended_before_the_job_was_suspended_is_not_run_again(outcome: str) -> None:
    ended = RUNNING | {"endedRun": 1, "outcome": outcome}
    job, due = spec(schedule="0 3 * * *"), NOW + timedelta(hours=15)
    step = decide(spec(suspend=True), ended, driver(phase=outcome))
    assert isinstance(step, StopDriver)
    status = JobStatus({"metadata": {"generation": 1}, "status": ended})
    status.stop(step.run, step.reason, step.message, NOW)
    resumed = decide(spec(), status.values, None)
    assert isinstance(resumed, Hold) and resumed.phase == outcome
    scheduled = decide(job, status.values, None, next_run_at=due)
    assert isinstance(scheduled, Hold) and (scheduled.phase, scheduled.until) == ("Waiting", due)
    assert decide(job, status.values, None, next_run_at=due, now=due) == StartDriver(2)


def test_an_end_that_comes_before_a_suspension_is_recorded_first() -> None:
    """Unrecorded it was a run that was stopped, and the program ran again on resume."""
    suspended, ended = spec(suspend=True), driver(phase="Succeeded")
    step = decide(suspended, RUNNING, ended)
    assert isinstance(step, RecordEnd) and step.outcome == "Succeeded"
    status = JobStatus({"metadata": {"generation": 1}, "status": RUNNING})
    status.end(step, RestartPolicy(), NOW)
    assert isinstance(decide(suspended, status.values, ended), StopDriver)
    # One that was told to stop ends for that, whatever its exit code is.
    assert isinstance(decide(suspended, RUNNING | {"stoppedRun": 1}, ended), StopDriver)
    assert isinstance(decide(suspended, RUNNING, driver(2, "Succeeded")), StopDriver)


def test_a_driver_that_an_operator_did_not_get_to_stop_is_stopped_though_the_job_goes_on() -> None:
    """It wrote down that it stops the run, and died; then the job was resumed."""
    stopped = RUNNING | {"stoppedRun": 1}
    step = decide(spec(), stopped, driver())
    assert isinstance(step, StopDriver) and step.run == 1
    assert decide(spec(), stopped, None) == StartDriver(2)


def test_a_job_stops_while_its_cluster_sleeps_and_goes_on_where_it_was() -> None:
    asleep: Any = {"obstacle": ("ClusterHibernated", "x"), "is_cluster_asleep": True}
    step = decide(spec(), RUNNING, driver(), **asleep)
    assert isinstance(step, StopDriver) and step.reason == "ClusterHibernated"
    stopped = RUNNING | {"stoppedRun": 1}
    held = decide(spec(), stopped, None, **asleep)
    assert isinstance(held, Hold) and (held.phase, held.reason) == ("Pending", "ClusterHibernated")
    assert held.until is not None, "it looks whether the cluster is awake"
    assert decide(spec(), stopped, None) == StartDriver(2)


def test_a_changed_job_replaces_its_driver() -> None:
    step = decide(spec(), RUNNING, driver(job_hash="other"))
    assert isinstance(step, StopDriver) and step.reason == "SpecChanged"


def test_a_driver_whose_cluster_is_gone_is_stopped_for_that() -> None:
    gone = ("ClusterMissing", "there is no LogCluster main")
    step = decide(spec(), RUNNING, driver(job_hash="other"), obstacle=gone)
    assert step == StopDriver(1, *gone)
    assert decide(spec(), RUNNING, driver(), obstacle=gone) == Watch()
    held = decide(spec(), RUNNING | {"stoppedRun": 1}, None, obstacle=gone)
    assert isinstance(held, Hold) and (held.phase, held.reason) == ("Pending", "ClusterMissing")


def test_a_driver_of_another_run_goes_first() -> None:
    for run in (-1, 1):
        step = decide(spec(), RUNNING | {"run": 2}, driver(run=run))
        assert isinstance(step, StopDriver) and step.run == run


def test_a_vanished_driver_is_an_infrastructure_failure() -> None:
    step = decide(spec(), RUNNING, None)
    assert step == RecordEnd(1, "Failed", True, "the driver's pod is gone")


def test_ends_are_recorded_once() -> None:
    failed = driver(phase="Failed", exit_code=1, exit_message="boom")
    assert decide(spec(), RUNNING, failed) == RecordEnd(1, "Failed", False, "exit code 1: boom")
    ended = RUNNING | {"endedRun": 1, "outcome": "Failed", "lastError": "boom"}
    assert decide(spec(), ended, failed) == Hold("Failed", "Failed", "boom")


def test_a_failed_run_waits_out_its_back_off_and_makes_room() -> None:
    retry_at = NOW + timedelta(seconds=20)
    status = RUNNING | {
        "endedRun": 1,
        "outcome": "Failed",
        "retryAt": retry_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    failed = driver(phase="Failed", exit_code=1)
    waiting = decide(spec(), status, failed)
    assert isinstance(waiting, Hold)
    assert (waiting.phase, waiting.until) == ("BackingOff", retry_at)
    assert isinstance(decide(spec(), status, failed, now=retry_at), StopDriver)
    assert decide(spec(), status, None, now=retry_at) == StartDriver(2)


def test_success_is_the_end_unless_the_job_runs_always_or_has_changed() -> None:
    status = RUNNING | {"endedRun": 1, "outcome": "Succeeded"}
    done = driver(phase="Succeeded", exit_code=0)
    assert decide(spec(), status, done) == Hold("Succeeded", "Succeeded", "the job has ended")
    always = spec(restartPolicy={"type": "Always"})
    assert isinstance(decide(always, status, done), StopDriver)
    assert decide(always, status, None) == StartDriver(2)
    assert decide(spec(), status | {"jobHash": "older"}, None) == StartDriver(2)


def test_a_schedule_is_waited_for_and_a_run_that_goes_on_lets_it_pass() -> None:
    job = spec(schedule="0 3 * * *")
    due = NOW + timedelta(hours=15)
    first = decide(job, {}, None, next_run_at=due)
    assert isinstance(first, Hold) and (first.phase, first.until) == ("Waiting", due)
    assert decide(job, {}, None, next_run_at=due, now=due) == StartDriver(1)
    assert decide(job, RUNNING, driver(), next_run_at=due, now=due) == Watch()
    ended = RUNNING | {"endedRun": 1, "outcome": "Succeeded"}
    assert decide(job, ended, None, next_run_at=due, now=due) == StartDriver(2)
    failed = RUNNING | {"endedRun": 1, "outcome": "Failed"}
    assert isinstance(decide(job, failed, None, next_run_at=due), Hold)


@pytest.mark.parametrize(
    ("started", "ended", "due_day"),
    [
        (None, None, 28),
        ("28T03:00:00", None, 29),
        ("28T03:00:00", "28T03:40:00", 29),
        # Its run lasted for longer than a day.
        ("28T03:00:00", "29T04:00:00", 30),
        # The clock of its node is behind.
        ("28T03:00:00", "28T02:59:58", 29),
    ],
)
def test_the_next_run_is_due_after_the_last_one(
    started: str | None, ended: str | None, due_day: int
) -> None:
    def at(text: str | None) -> str | None:
        return text and f"2026-11-{text}Z"

    job = {
        "metadata": {"creationTimestamp": at("27T12:00:00")},
        "status": {"startedAt": at(started), "endedAt": at(ended)},
    }
    due = find_next_run(job, spec(schedule="0 3 * * *"), NOW)
    assert due == datetime(2026, 11, due_day, 3, tzinfo=UTC)


def test_a_run_ends_when_its_program_was_over_and_not_when_an_operator_sees_it() -> None:
    """One that was away would else pass over a time that came after the end."""
    pod = {
        "metadata": {"annotations": {RUN_ANNOTATION: "1"}},
        "status": {
            "phase": "Succeeded",
            "containerStatuses": [
                {
                    "name": DRIVER_CONTAINER,
                    "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-11-28T03:59:00Z"}},
                }
            ],
        },
    }
    step = decide(spec(), RUNNING, read_driver(pod))
    assert isinstance(step, RecordEnd)
    status = JobStatus({"metadata": {}, "status": dict(RUNNING)})
    status.end(step, spec().restart_policy, NOW)
    assert status.values["endedAt"] == "2026-11-28T03:59:00Z"


def test_nothing_is_remembered_between_steps() -> None:
    """An operator that died after each write finds the same job, and starts one driver."""
    job, manifest = spec(), {"metadata": {"generation": 1}, "status": {}}
    pods: list[DriverPod] = []
    for _ in range(6):
        status = JobStatus(manifest)
        step = decide(job, status.values, pods[-1] if pods else None)
        if isinstance(step, StartDriver):
            status.start(step.run, HASH, NOW)
            manifest["status"] = status.values
            # Died here once: the pod was not made.
            if step.run > 1:
                pods.append(driver(run=step.run))
        elif isinstance(step, RecordEnd):
            status.end(step, job.restart_policy, NOW - timedelta(minutes=1))
            manifest["status"] = status.values
    assert [pod.run for pod in pods] == [2]


@pytest.mark.parametrize(
    ("policy", "row", "is_infrastructure", "delay_s"),
    [
        ({"type": "Never"}, 1, True, None),
        ({"type": "OnFailure"}, 1, False, 5),
        ({"type": "OnFailure"}, 4, False, 40),
        ({"type": "OnFailure"}, 40, False, 300),
        ({"type": "OnFailure", "retries": 2}, 2, False, 10),
        ({"type": "OnFailure", "retries": 2}, 3, False, None),
        ({"type": "OnInfrastructureFailure"}, 1, False, None),
        ({"type": "OnInfrastructureFailure"}, 1, True, 5),
    ],
)
def test_back_off(
    policy: dict[str, Any], row: int, is_infrastructure: bool, delay_s: int | None
) -> None:
    at = retry_time(
        RestartPolicy(**policy), restarts_in_a_row=row, is_infrastructure=is_infrastructure, now=NOW
    )
    assert at == (None if delay_s is None else NOW + timedelta(seconds=delay_s))


def test_a_driver_that_ran_for_long_begins_a_new_row() -> None:
    def row_after(ran_s: int) -> int:
        started = (NOW - timedelta(seconds=ran_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        values = RUNNING | {"startedAt": started, "restartsInARow": 7}
        status = JobStatus({"metadata": {}, "status": values})
        status.end(RecordEnd(1, "Failed", True, "gone"), RestartPolicy(), NOW)
        return int(status.values["restartsInARow"])

    assert (row_after(599), row_after(600)) == (8, 1)


def test_a_killed_container_is_no_fault_of_the_program() -> None:
    def read(reason: str, code: int) -> DriverPod:
        ended = {"exitCode": code, "reason": reason, "message": "last words"}
        return read_driver(
            {
                "metadata": {"annotations": {"fairlead.io/run": "3"}},
                "status": {
                    "phase": "Failed",
                    "containerStatuses": [{"name": "driver", "state": {"terminated": ended}}],
                },
            }
        )

    killed, failed = read("OOMKilled", 137), read("Error", 1)
    assert killed.is_infrastructure_failure and not failed.is_infrastructure_failure
    assert killed.describe_end() == "OOMKilled exit code 137: last words"
    assert failed.describe_end() == "exit code 1: last words"


def test_figures_alone_are_told_apart_and_an_unchanged_status_is_not_written() -> None:
    status = JobStatus({"metadata": {"generation": 3}})
    status.start(1, HASH, NOW)

    def run_on(status: JobStatus, lag: int) -> None:
        query = QueryProgress("id", "delays", 4, 100, lag)
        status.run_on(JobProgress((query,)), driver="job-driver", executors=2, problem="", now=NOW)

    run_on(status, 10)
    stored = {name: value for name, value in status.values.items() if value is not None}
    written = {"metadata": {"generation": 3}, "status": stored}
    same, other = JobStatus(written), JobStatus(written)
    run_on(same, 10)
    assert same.patch() == {}
    run_on(other, 9)
    assert other.patch().keys() == {"lag", "queries"}
    assert other.is_only_figures(other.patch())


def test_schedules_are_utc_and_bad_ones_are_named() -> None:
    assert next_time("0 3 * * *", NOW) == datetime(2026, 11, 2, 3, 0, tzinfo=UTC)
    for wrong in ("often", "0 3 * *", "61 * * * *", "0 0 31 2 *"):
        with pytest.raises(ScheduleError, match=r"spec\.schedule"):
            next_time(wrong, NOW)
