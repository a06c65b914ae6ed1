"""Drills with a schedule: when they begin, what they keep, and when they are skipped."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_drill_world import FakeWorld, go_to_the_end, manifest, new_runner, seen, spec_of
from prometheus_client import CollectorRegistry

from fairlead_operator.conditions import find_condition
from fairlead_operator.drills import steps
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.observer import find_due, find_other_drill
from fairlead_operator.schedule import ScheduleError, next_time

EVERY_MINUTE = {"schedule": "* * * * *"}
HOUR_MS = 3_600_000


def ago(**time: int) -> str:
    return (datetime.now(UTC) - timedelta(**time)).isoformat(timespec="seconds")


def due_drill(**spec: Any) -> dict[str, Any]:
    """One whose time was a minute ago; what the last one has left is still there."""
    before = {
        "phase": "Finished",
        "round": 3,
        "startedAt": ago(minutes=4),
        "endedAt": ago(minutes=2, seconds=30),
        "runs": [{"target": "broker 9"}],
        "recoveryMaxMs": 99_999,
        "history": [{"verdict": "Failed"}, {"verdict": "Passed"}],
    }
    return manifest(**EVERY_MINUTE, **spec) | {"status": before}


def step_once(world: FakeWorld, registry: CollectorRegistry | None = None) -> None:
    drill = world.drill | {"metadata": dict(world.drill["metadata"])}
    asyncio.run(new_runner(world, registry)._step(drill))


def test_a_drill_that_is_due_goes_all_the_way_and_leaves_a_row() -> None:
    world = FakeWorld(due_drill(historyLimit=2))
    step_once(world)
    assert world.drill["status"]["phase"] == "Pending"
    assert "runs" not in world.drill["status"]
    assert "recoveryMaxMs" not in world.drill["status"]
    topics: list[Any] = []
    create = world.create

    async def noted(kind: Any, namespace: str, body: dict[str, Any]) -> None:
        topics.extend(
            each for each in body["spec"]["containers"][0]["command"] if "--topic=" in each
        )
        await create(kind, namespace, body)

    world.create = noted  # type: ignore[method-assign, assignment]
    go_to_the_end(world)
    status = world.drill["status"]
    assert [run["target"] for run in status["runs"]] == ["broker 1"]
    row, older = status["history"]
    assert (row["verdict"], row["recoveryMaxMs"], row["lost"]) == ("Passed", 180, 0)
    assert row["dueAt"] < row["startedAt"] <= status["endedAt"]
    assert older == {"verdict": "Failed"}, "the oldest is forgotten"
    # The topic of one that failed may still be there, as evidence.
    assert topics == ["--topic=fairlead-drill-uid-of-this-d-4"]


def test_it_is_skipped_with_a_reason_where_the_cluster_is_not_well() -> None:
    world = FakeWorld(due_drill())
    world.under_replicated = 2
    step_once(world)
    step_once(world)
    row = world.drill["status"]["history"][0]
    assert row["verdict"] == "Skipped"
    assert row["message"].startswith("ClusterUnhealthy: ")
    assert "2 under-replicated" in row["message"]
    assert world.pod is None
    step_once(world)
    assert world.drill["status"]["nextRunAt"] > world.drill["status"]["endedAt"]


def test_one_that_a_sleeping_cluster_skips_is_no_news_to_alerts() -> None:
    world = FakeWorld(due_drill())
    world.is_hibernated = True
    step_once(world)
    step_once(world)
    row = world.drill["status"]["history"][0]
    assert row["verdict"] == "Skipped"
    assert row["message"].startswith("ClusterHibernated: ")
    registry = CollectorRegistry()
    step_once(world, registry)
    told = {
        result: registry.get_sample_value(
            "fairlead_drill_scheduled_last_result",
            {"namespace": "ns", "drill": world.drill["metadata"]["name"], "result": result},
        )
        for result in ("skipped", "failed")
    }
    assert told == {"skipped": 0.0, "failed": 1.0}, "what the one before has shown still counts"


def test_one_that_nobody_began_in_time_is_skipped_and_not_caught_up_with() -> None:
    world = FakeWorld(manifest(**EVERY_MINUTE))
    for _ in range(3):
        step_once(world)
    status = world.drill["status"]
    (row,) = status["history"]
    assert row["dueAt"] == "2026-01-01T00:01:00Z"
    assert row["verdict"] == "Skipped"
    assert row["message"].startswith("TooLate: not begun within 60 minutes")
    assert status["nextRunAt"] > datetime.now(UTC).isoformat()


def test_it_says_when_it_begins_and_asks_nobody_until_then() -> None:
    world = FakeWorld(manifest(schedule="0 3 1 1 *", timeZone="Europe/Berlin"))
    world.drill["metadata"]["creationTimestamp"] = ago(minutes=1)
    runner = new_runner(world)
    drill = world.drill | {"metadata": dict(world.drill["metadata"])}
    assert asyncio.run(runner._step(drill)) is False
    status = world.drill["status"]
    assert status["nextRunAt"].endswith("-01-01T02:00:00Z")
    complete = find_condition(status["conditions"], "Complete")
    assert complete is not None
    assert (complete["reason"], complete["status"]) == ("Scheduled", "False")
    # Not before an hour has passed, or the schedule has changed.
    assert asyncio.run(runner._attend(("ns", "one"), world.drill)) is False


def test_a_schedule_that_nobody_can_read_is_refused_with_words() -> None:
    for spec, word in (
        ({"schedule": "every monday"}, "spec.schedule"),
        ({"schedule": "0 3 * * *", "timeZone": "Mars/Olympus"}, "spec.timeZone"),
    ):
        world = FakeWorld(manifest(**spec))
        step_once(world)
        complete = find_condition(world.drill["status"]["conditions"], "Complete")
        assert complete is not None
        assert complete["reason"] == "InvalidSchedule"
        assert word in complete["message"]


@pytest.mark.parametrize(
    ("status", "late_ms", "suspend", "expected"),
    [
        ({}, -5, False, steps.AwaitTime),
        ({}, 5, False, steps.StartRound),
        ({}, 5, True, steps.Hold),
        ({"phase": "Finished"}, -5, False, steps.AwaitTime),
        ({"phase": "Refused"}, 5, False, steps.StartRound),
        ({"phase": "Finished"}, 5, True, steps.Idle),
        ({"phase": "Pending", "startedAt": "then"}, HOUR_MS, False, steps.Prepare),
        ({"phase": "Pending", "startedAt": "then"}, HOUR_MS + 1, False, steps.Refuse),
        ({"phase": "Pending", "startedAt": "then"}, 5, True, steps.Hold),
    ],
)
def test_what_a_drill_with_a_schedule_does(
    status: Any, late_ms: int, suspend: bool, expected: type
) -> None:
    spec = spec_of(**EVERY_MINUTE, suspend=suspend)
    observed = seen(pod="Absent", late_ms=late_ms)
    assert isinstance(steps.decide_drill_step(spec, status, observed), expected)


def test_one_that_waits_for_its_time_keeps_no_other_waiting() -> None:
    scheduled, other = manifest(**EVERY_MINUTE), manifest()
    other["metadata"] |= {"name": "two", "creationTimestamp": "2026-01-02T00:00:00Z"}
    assert find_other_drill(other, spec_of(), [scheduled, other]) == ""
    scheduled["status"] = {"phase": "Pending", "startedAt": "2026-01-02T00:00:00Z"}
    assert find_other_drill(other, spec_of(), [scheduled, other]) == "one"


def test_a_time_that_passed_while_one_went_on_is_let_pass() -> None:
    drill = manifest(**EVERY_MINUTE)
    drill["status"] = {"startedAt": "2026-01-01T00:01:00Z", "endedAt": "2026-01-01T00:04:30Z"}
    due, _ = find_due(drill, spec_of(**EVERY_MINUTE))
    assert due == datetime(2026, 1, 1, 0, 5, tzinfo=UTC)


def test_clocks_that_are_put_forward_skip_nothing() -> None:
    before = datetime(2026, 3, 28, 12, tzinfo=UTC)
    due = next_time("30 2 * * *", before, "Europe/Berlin")
    assert due.date().isoformat() == "2026-03-29"
    with pytest.raises(ScheduleError, match="Europe/Berlin"):
        next_time("30 2 * * *", before, "Europe/Nowhere")


def test_what_came_of_it_is_a_metric_and_goes_with_the_drill() -> None:
    registry = CollectorRegistry()
    metrics = DrillMetrics(registry)
    labels = {"namespace": "ns", "drill": "one"}

    def read(name: str, **more: str) -> float | None:
        return registry.get_sample_value(name, labels | more)

    due = datetime(2026, 1, 1, tzinfo=UTC)
    metrics.note_schedule("ns", "one", verdict="Failed", due=due)
    name = "fairlead_drill_scheduled_last_result"
    assert (read(name, result="failed"), read(name, result="passed")) == (1.0, 0.0)
    assert read("fairlead_drill_scheduled_due_timestamp_seconds") == due.timestamp()
    metrics.note_schedule("ns", "one", verdict="Skipped", due=None)
    assert (read(name, result="failed"), read(name, result="skipped")) == (0.0, 1.0)
    assert read("fairlead_drill_scheduled_due_timestamp_seconds") is None
    metrics.forget_schedule("ns", "one")
    assert read(name, result="skipped") is None


@pytest.mark.parametrize("spec", [{}, {"target": {"type": "Moon"}}])
def test_a_drill_whose_schedule_was_taken_away_is_shown_as_due_no_longer(spec: Any) -> None:
    """An hour after that time somebody would be called, for a drill that nobody waits for."""
    registry, name = CollectorRegistry(), "fairlead_drill_scheduled_due_timestamp_seconds"
    labels = {"namespace": "ns", "drill": "one"}
    world = FakeWorld(due_drill())
    runner = new_runner(world, registry)
    asyncio.run(runner._step(dict(world.drill)))
    assert registry.get_sample_value(name, labels) is not None
    asyncio.run(runner._step(world.drill | {"spec": manifest(**spec)["spec"]}))
    assert registry.get_sample_value(name, labels) is None
    result = {**labels, "result": "failed"}
    assert registry.get_sample_value("fairlead_drill_scheduled_last_result", result) is None
