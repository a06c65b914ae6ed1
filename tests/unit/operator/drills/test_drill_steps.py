"""What a failover drill does next, by tables; the whole way with a new operator at every step."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fake_drill_world import (
    WELL,
    FakeWorld,
    agent,
    fault,
    go_to_the_end,
    manifest,
    new_runner,
    seen,
    spec_of,
)

from fairlead_kube.errors import ApiError
from fairlead_operator.conditions import find_condition
from fairlead_operator.controller_client import ControllerRefusedError
from fairlead_operator.drills import steps
from fairlead_operator.drills.agent_client import AgentError
from fairlead_operator.drills.measurement import ControllerTimes, build_run
from fairlead_operator.drills.observations import (
    ClusterObservation,
    ControllerAccess,
    DrillObservations,
    observe_cluster,
)
from fairlead_operator.drills.observer import find_other_drill
from fairlead_operator.drills.steps import decide_drill_step
from fairlead_operator.specs.names import CUT_LABEL

UNWELL = {
    "broker away": replace(WELL, live=frozenset({0, 1}), not_live={2: "fenced"}),
    "broker never came": replace(WELL, live=frozenset({0, 1})),
    "no brokers": replace(WELL, live=frozenset(), brokers_expected=0),
    "under-replicated": replace(WELL, under_replicated=1),
    "offline": replace(WELL, offline=2),
    "rolling": replace(WELL, is_changing=True),
    "not allowed": replace(WELL, is_enabled=False),
}


@pytest.mark.parametrize("cluster", UNWELL.values(), ids=list(UNWELL))
def test_a_drill_is_refused_on_a_cluster_that_is_not_well(cluster: ClusterObservation) -> None:
    step = decide_drill_step(spec_of(), {}, seen(pod="Absent", cluster=cluster))
    assert isinstance(step, steps.Refuse)
    assert step.message


@pytest.mark.parametrize(
    ("spec", "more", "expected"),
    [
        ({"suspend": True}, {}, steps.Hold),
        ({}, {"other_drill": "another"}, steps.Hold),
        ({}, {"cluster": None}, steps.Hold),
        ({}, {"cluster": None, "is_cluster_declared": False}, steps.Refuse),
        ({"target": {"type": "Broker", "brokerId": 9}}, {}, steps.Refuse),
        ({"workload": {"replicationFactor": 4}}, {}, steps.Refuse),
        ({}, {}, steps.Prepare),
    ],
)
def test_how_a_pending_drill_goes_on(spec: Any, more: Any, expected: type) -> None:
    step = decide_drill_step(spec_of(**spec), {}, seen(pod="Absent", **more))
    assert isinstance(step, expected)


@pytest.mark.parametrize(
    ("phase", "observed", "expected"),
    [
        ("Preparing", seen(pod="Absent"), steps.Prepare()),
        ("Preparing", seen(pod="Starting", pod_age_s=20), steps.Idle()),
        ("Preparing", seen(agent("settling")), steps.Idle()),
        ("Preparing", seen(agent("steady", 2999)), steps.Idle()),
        ("Preparing", seen(agent("steady", 3000)), steps.BeginRun(1)),
        ("Running", seen(agent("steady", 9000)), steps.BeginRun(1)),
        ("Running", seen(agent("observing", run=fault(since_fault_ms=999))), steps.Idle()),
        ("Running", seen(agent("observing", run=fault(is_recovered=False))), steps.Idle()),
        ("Running", seen(agent("observing", run=fault(), is_well=False)), steps.Idle()),
        (
            "Running",
            seen(agent("observing", run=fault()), cluster=UNWELL["under-replicated"]),
            steps.Idle(),
        ),
        ("Running", seen(agent("observing", run=fault()), cluster=None), steps.Idle()),
        ("Running", seen(agent("observing", run=fault())), steps.CollectRun(1)),
        ("Running", seen(agent("settling", run=fault(is_ended=True))), steps.CollectRun(1)),
        ("Running", seen(agent("observing", run=fault(is_injected=False))), steps.ForgetRun(1)),
        ("Running", seen(None, agent_silent_s=5), steps.Idle()),
        ("Verifying", seen(agent("steady")), steps.Verify()),
        ("Verifying", seen(agent("verifying")), steps.Idle()),
        ("Verifying", seen(agent("verified", verdict={})), steps.Finish()),
        ("Finished", seen(pod="Running"), steps.CleanUp()),
        ("Finished", seen(pod="Absent"), steps.Idle()),
        ("Refused", seen(pod="Absent"), steps.Idle()),
    ],
)
def test_what_a_drill_does_next(
    phase: str, observed: DrillObservations, expected: steps.Step
) -> None:
    assert decide_drill_step(spec_of(), {"phase": phase}, observed) == expected


@pytest.mark.parametrize(
    "observed",
    [
        seen(pod="Absent"),
        seen(pod="Ended", pod_problem="exit code 1"),
        seen(agent("failed", problem="the topic is not replicated")),
        seen(None, agent_silent_s=61),
        seen(agent("steady", 130_000), cluster=UNWELL["under-replicated"]),
    ],
)
def test_a_drill_that_cannot_go_on_ends_with_the_reason(observed: DrillObservations) -> None:
    step = decide_drill_step(spec_of(), {"phase": "Running"}, observed)
    assert isinstance(step, steps.Finish)
    assert step.problem


def test_runs_that_never_recover_or_heal_are_collected_with_a_problem() -> None:
    lost = agent("observing", run=fault(since_fault_ms=32_000, is_recovered=False))
    step = decide_drill_step(spec_of(), {"phase": "Running"}, seen(lost))
    assert isinstance(step, steps.CollectRun)
    assert "no new acknowledgement" in step.problem
    unhealed = agent("observing", run=fault(since_fault_ms=302_000), is_well=False)
    step = decide_drill_step(spec_of(), {"phase": "Running"}, seen(unhealed))
    assert isinstance(step, steps.CollectRun)
    assert "not every replica" in step.problem


def test_a_pause_lasts_as_long_as_it_was_asked_for() -> None:
    spec = spec_of(fault={"type": "Pause", "durationSeconds": 10})
    run = agent("observing", run=fault(since_fault_ms=9_999))
    assert decide_drill_step(spec, {"phase": "Running"}, seen(run)) == steps.Idle()


CONTROLLER: Any = {"type": "Controller"}
NOBODY = ControllerAccess(operator_namespace="fairlead-system")
ALLOWED: dict[str, Any] = {
    "namespace": "fairlead-system",
    "controller_access": ControllerAccess(is_allowed=True, operator_namespace="fairlead-system"),
}


def test_a_new_controller_proves_that_the_old_one_was_broken() -> None:
    spec = spec_of(target=CONTROLLER)
    state = agent("observing", run=fault(is_injected=False))
    status = {"phase": "Running"}
    assert decide_drill_step(spec, status, seen(state, **ALLOWED)) == steps.Idle()
    later = seen(state, **ALLOWED, cluster=replace(WELL, controller_epoch=5))
    assert decide_drill_step(spec, status, later) == steps.ConfirmRun(1)
    state = agent("observing", run=fault(is_injected=False, since_fault_ms=16_000))
    assert decide_drill_step(spec, status, seen(state, **ALLOWED)) == steps.ForgetRun(1)


@pytest.mark.parametrize(
    ("changes", "reason", "advice"),
    [
        (
            {"controller_access": NOBODY},
            "ControllerDrillsDisabled",
            "drills.controller",
        ),
        ({"namespace": "shop"}, "NotInOperatorNamespace", "in fairlead-system"),
    ],
)
def test_only_where_the_operator_allows_it_a_drill_breaks_the_controller(
    changes: Any, reason: str, advice: str
) -> None:
    spec = spec_of(target=CONTROLLER)
    assert decide_drill_step(spec, {}, seen(pod="Absent", **ALLOWED)) == steps.Prepare()
    allowed = ALLOWED | changes
    for held in ({}, {"other_drill": "another"}, {"cluster": None}):
        step = decide_drill_step(spec, {}, seen(pod="Absent", **allowed, **held))
        assert isinstance(step, steps.Refuse)
        assert step.reason == reason
        assert advice in step.message
    steady = seen(agent("steady", 9000), **allowed)
    for phase in ("Preparing", "Running", "Verifying"):
        step = decide_drill_step(spec, {"phase": phase}, steady)
        assert isinstance(step, steps.Finish), "whoever may write a status may not begin a run"
        assert advice in step.problem
    other = decide_drill_step(spec_of(), {}, seen(pod="Absent", **changes))
    assert isinstance(other, steps.Prepare), "drills of brokers are the namespace's own"


def test_all_runs_are_done_before_it_is_verified() -> None:
    status = {"phase": "Running", "runs": [{}]}
    twice = spec_of(runs=2)
    state = seen(agent("steady", 5000, run=fault(is_ended=True)))
    assert decide_drill_step(twice, status, state) == steps.BeginRun(2)
    assert decide_drill_step(spec_of(), status, state) == steps.Verify()


def test_a_broker_that_was_scaled_away_keeps_no_drill_waiting() -> None:
    states = {0: "live", 1: "live", 2: "live", 3: "fenced"}
    status = {
        "brokers": [{"id": broker, "state": state} for broker, state in states.items()],
        "partitions": {"underReplicated": 0, "offline": 0},
        "controller": {"epoch": 4},
    }
    pools = [{"spec": {"replicas": 2}}, {"spec": {"replicas": 1, "idBase": 2}}]
    observed = observe_cluster({}, pools, status)
    assert replace(observed, epochs={}, nodes={}, zones={}) == WELL
    larger = [*pools, {"spec": {"replicas": 1, "idBase": 3}}]
    assert observe_cluster({}, larger, status).not_live == {3: "fenced"}


def test_the_older_drill_of_a_cluster_comes_first() -> None:
    old, new, elsewhere = manifest(), manifest(), manifest(clusterName="other")
    new["metadata"] |= {"name": "two", "creationTimestamp": "2026-01-02T00:00:00Z"}
    elsewhere["metadata"] |= {"name": "three"}
    drills = [old, new, elsewhere]
    assert find_other_drill(new, spec_of(), drills) == "one"
    assert find_other_drill(old, spec_of(), drills) == ""
    new["status"] = {"phase": "Running"}
    assert find_other_drill(old, spec_of(), drills) == "two"
    old["spec"]["suspend"] = True
    new["status"] = {"phase": "Finished"}
    assert find_other_drill(new, spec_of(), drills) == ""


def test_a_drill_goes_all_the_way_with_a_new_operator_at_every_step() -> None:
    world = FakeWorld(manifest(runs=2, limits={"recoveryMs": 500}))
    go_to_the_end(world)
    status = world.drill["status"]
    assert [run["target"] for run in status["runs"]] == ["broker 1", "broker 1"]
    assert world.injected == [(1, "kill")] * 2
    first = status["runs"][0]
    assert (first["detectionMs"], first["electionMs"]) == (60, 80)
    assert (first["recoveryP50Ms"], first["recoveryMaxMs"], first["longestGapMs"]) == (
        130,
        180,
        210,
    )
    assert (status["recoveryMaxMs"], status["lost"], status["acknowledged"]) == (180, 0, 9)
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Complete": "True",
        "Passed": "True",
    }
    assert [reason for reason, _ in world.events] == ["DrillPassed"]
    offsets = [entry["offsetMs"] for entry in status["timeline"]]
    assert offsets == sorted(offsets)
    assert status["timeline"][0] == {"offsetMs": 0, "event": "broker 1 killed"}


FULL = {"fault": {"type": "DiskFull", "durationSeconds": 5}}


def test_a_full_disk_is_broken_measured_and_told_of() -> None:
    world = FakeWorld(manifest(**FULL))
    go_to_the_end(world)
    status = world.drill["status"]
    assert world.injected == [(1, "fill")]
    told = {entry["event"]: entry["offsetMs"] for entry in status["timeline"]}
    assert told["broker 1 out of room"] == 0
    assert told["broker 1 has room again"] == 5_000
    assert [reason for reason, _ in world.events] == ["DrillPassed"]


def test_a_disk_that_others_use_ends_the_drill_with_the_brokers_words() -> None:
    world = FakeWorld(manifest(**FULL))

    async def refuse(*_where: Any, **_how: Any) -> None:
        raise ControllerRefusedError(409, "/data is only the folder /pvc-1 of a file system")

    world.inject_fault = refuse  # type: ignore[method-assign]
    go_to_the_end(world)
    passed = find_condition(world.drill["status"]["conditions"], "Passed")
    assert passed is not None
    assert passed["status"] == "False"
    assert "the fault was refused: /data is only the folder" in passed["message"]


CALLS = go_to_the_end(FakeWorld(manifest()))


@pytest.mark.parametrize("lives", range(1, CALLS + 1))
def test_an_operator_that_dies_in_the_middle_of_a_step_leaves_nothing_broken(lives: int) -> None:
    world = FakeWorld(manifest())
    go_to_the_end(world, lives=lives)
    status = world.drill["status"]
    assert len(status["runs"]) == 1
    assert world.pod is None
    passed = next(c for c in status["conditions"] if c["type"] == "Passed")
    assert passed["status"] == "True"


class DeletedWorld(FakeWorld):
    """Brokers' pods can be deleted, which is announced before."""

    def __init__(self) -> None:
        super().__init__(manifest(fault={"type": "Delete"}))
        self.intents: set[str] = set()

    async def delete(self, kind: Any, *where: str, uid: str | None = None) -> None:
        _, name = where
        if name == "demo-p-1":
            assert self.intents == {"about demo-p-1"}
            assert uid == "uid-of-1"
            self.injected.append((1, "delete"))
            return
        await super().delete(kind, *where, uid=uid)

    async def record_intent(self, _ns: str, _name: str, action: str, target: str) -> str:
        assert action == "delete-pod"
        self.intents.add(f"about {target}")
        return f"about {target}"

    async def clear_intent(self, _ns: str, _name: str, intent: str) -> None:
        self.intents.discard(intent)


def test_a_pod_that_a_drill_has_deleted_is_announced_no_longer_whatever_becomes_of_the_drill() -> (
    None
):
    world = DeletedWorld()

    async def story() -> None:
        for _ in range(50):
            await new_runner(world)._step(dict(world.drill))
            if world.injected:
                world.pod = None

    asyncio.run(story())
    assert world.injected == [(1, "delete")]
    assert world.drill["status"]["phase"] == "Finished"
    assert not world.intents
    whole = DeletedWorld()
    go_to_the_end(whole)
    assert not whole.intents


ZONE = {"target": {"type": "Zone", "zone": "a"}}


def test_all_brokers_of_a_zone_are_broken_at_once_and_the_forecast_is_kept() -> None:
    world = FakeWorld(manifest(**ZONE))
    go_to_the_end(world)
    assert sorted(world.injected) == [(0, "kill"), (1, "kill")]
    (run,) = world.drill["status"]["runs"]
    assert run["target"] == "zone a (broker 0, 1)"
    assert run["detectionMs"] == 70
    assert (run["forecastLeaders"], run["movedLeaders"]) == (5, 1)


@pytest.mark.parametrize("loss", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_several_brokers_whose_loss_would_cost_partitions_are_not_broken_unasked(
    loss: tuple[int, int, int],
) -> None:
    world = FakeWorld(manifest(**ZONE))
    world.loss_of_two = loss
    asyncio.run(new_runner(world)._step(dict(world.drill)))
    complete = find_condition(world.drill["status"]["conditions"], "Complete")
    assert complete is not None
    assert complete["reason"] == "WouldLoseAvailability"
    assert "allowUnsafe" in complete["message"]
    forced = FakeWorld(manifest(**ZONE, allowUnsafe=True))
    forced.loss_of_two = loss
    go_to_the_end(forced)
    assert len(forced.injected) == 2


def test_a_danger_that_came_up_meanwhile_ends_the_drill_before_the_fault() -> None:
    world = FakeWorld(manifest(**ZONE))

    async def story() -> None:
        for _ in range(50):
            await new_runner(world)._step(dict(world.drill))
            if world.pod is not None:
                world.loss_of_two = (0, 1, 0)

    asyncio.run(story())
    assert world.injected == []
    complete = find_condition(world.drill["status"]["conditions"], "Complete")
    assert complete is not None
    assert "1 their min.insync.replicas" in complete["message"]


def test_a_zone_without_brokers_is_refused_and_those_there_are_are_named() -> None:
    world = FakeWorld(manifest(target={"type": "Node", "node": "node-9"}))
    asyncio.run(new_runner(world)._step(dict(world.drill)))
    complete = find_condition(world.drill["status"]["conditions"], "Complete")
    assert complete is not None
    assert complete["reason"] == "UnknownNode"
    assert "node-0, node-1" in complete["message"]


ROLL = {"target": {"type": "Cluster"}, "fault": {"type": "RollingRestart"}}
ROLL_CALLS = go_to_the_end(FakeWorld(manifest(**ROLL)))


@pytest.mark.parametrize("lives", range(ROLL_CALLS + 1))
def test_a_rolling_restart_is_asked_for_once_a_run_whenever_an_operator_dies(lives: int) -> None:
    world = FakeWorld(manifest(**ROLL))
    go_to_the_end(world, lives=lives)
    assert set(world.restarts) == {"drill uid-of-this-drill run 1"}
    (run,) = world.drill["status"]["runs"]
    assert run["target"] == "all 3 brokers"
    # Nobody fails over: what counts is how long anybody had to wait.
    assert run["recoveryMaxMs"] == 210


def test_a_rolling_restart_ends_once_every_broker_has_started_again() -> None:
    spec, before = spec_of(**ROLL), {"brokerEpochs": {"0": 10, "1": 11, "2": 12}}
    run = fault(memo=before, since_fault_ms=60_000)
    state = agent("observing", run=run)
    half = replace(WELL, epochs={0: 20, 1: 21, 2: 12})
    whole = replace(half, epochs={0: 20, 1: 21, 2: 22})
    status = {"phase": "Running"}
    assert decide_drill_step(spec, status, seen(state, cluster=half)) == steps.Idle()
    assert decide_drill_step(spec, status, seen(state, cluster=whole)) == steps.CollectRun(1)
    late = agent("observing", run=fault(memo=before, since_fault_ms=steps.ROLL_MS_MAX + 1))
    step = decide_drill_step(spec, status, seen(late, cluster=half))
    assert isinstance(step, steps.CollectRun)
    assert "30 minutes" in step.problem


@pytest.mark.parametrize(
    ("spec", "run", "problem"),
    [
        ({}, {"since_fault_ms": 32_000, "is_recovered": False}, "no new acknowledgement"),
        ({}, {"since_fault_ms": 302_000}, "not every replica is in sync again"),
        (ROLL, {"since_fault_ms": steps.ROLL_MS_MAX + 1}, "not every broker has restarted"),
    ],
)
def test_what_took_too_long_is_a_problem_also_if_the_run_is_collected_again(
    spec: dict[str, Any], run: dict[str, Any], problem: str
) -> None:
    """The first time the status could not be written, or the operator ended."""
    ended = seen(agent("steady", run=fault(is_ended=True, **run)))
    step = decide_drill_step(spec_of(**spec), {"phase": "Running"}, ended)
    assert isinstance(step, steps.CollectRun)
    assert problem in step.problem


CUT = {"fault": {"type": "Isolate", "cut": "All", "durationSeconds": 10}}
CUT_CALLS = go_to_the_end(FakeWorld(manifest(**CUT)))


@pytest.mark.parametrize("lives", range(CUT_CALLS + 1))
def test_a_network_that_was_cut_is_joined_again_whenever_an_operator_dies(lives: int) -> None:
    world = FakeWorld(manifest(**CUT))
    go_to_the_end(world, lives=lives)
    status = world.drill["status"]
    assert (1, "cut") in world.injected
    assert (world.policy, world.labels[CUT_LABEL]) == (None, None)
    assert "cut" not in status
    assert [run.get("problem") for run in status["runs"]] == [None]
    assert {entry["event"] for entry in status["timeline"]} >= {
        "broker 1 cut off",
        "broker 1 connected again",
    }


def test_a_drill_that_is_deleted_while_it_cuts_joins_the_network_first() -> None:
    world = FakeWorld(manifest(**CUT))

    async def story() -> None:
        for _ in range(100):
            if world.labels.get(CUT_LABEL):
                break
            drill = world.drill | {"metadata": dict(world.drill["metadata"])}
            await new_runner(world)._step(drill)
        assert world.policy is not None
        world.drill["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
        await new_runner(world)._attend(("ns", "one"), world.drill)

    asyncio.run(story())
    assert (world.policy, world.labels[CUT_LABEL]) == (None, None)
    assert world.drill["metadata"]["finalizers"] == []


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_cut_ends_although_the_pod_of_the_drill_is_gone_or_silent(is_silent: bool) -> None:
    world = FakeWorld(manifest(**CUT))

    async def step() -> None:
        drill = world.drill | {"metadata": dict(world.drill["metadata"])}
        await new_runner(world)._step(drill)

    async def no_answer(*_: Any) -> Any:
        raise AgentError("no answer")

    async def story() -> None:
        for _ in range(100):
            if world.labels.get(CUT_LABEL):
                break
            await step()
        assert world.policy is not None
        if is_silent:
            world.state = no_answer  # type: ignore[method-assign, assignment]
            world.drill["status"]["cut"]["untilMs"] = 0
        else:
            world.pod = None
        for _ in range(3):
            await step()

    asyncio.run(story())
    assert (world.policy, world.labels[CUT_LABEL]) == (None, None)
    assert "cut" not in world.drill["status"]
    assert world.drill["status"]["phase"] == ("Running" if is_silent else "Finished")


PLANNED = {"run": 1, "pods": [{"name": "demo-p-1", "uid": "u"}], "untilMs": 9000}


@pytest.mark.parametrize(
    ("phase", "observed", "is_joined"),
    [
        ("Running", seen(agent("steady"), now_ms=8999), False),
        ("Running", seen(agent("observing", run=fault(since_fault_ms=9_999))), False),
        ("Running", seen(agent("observing", run=fault(since_fault_ms=10_000))), True),
        ("Running", seen(agent("observing", run=fault(is_injected=False))), True),
        ("Running", seen(agent("settling", run=fault(is_ended=True))), True),
        ("Running", seen(agent("observing", run=fault()), now_ms=9000), True),
        ("Running", seen(None, now_ms=8999, agent_silent_s=5), False),
        ("Running", seen(None, pod="Ended"), True),
        ("Verifying", seen(agent("steady")), True),
        ("Finished", seen(pod="Absent"), True),
    ],
)
def test_when_a_cut_ends(phase: str, observed: DrillObservations, is_joined: bool) -> None:
    step = decide_drill_step(spec_of(**CUT), {"phase": phase, "cut": PLANNED}, observed)
    assert (step == steps.HealCut()) is is_joined


def test_a_cut_that_nobody_notices_fails_the_drill_with_words() -> None:
    figures = {"memo": {}, "electionMs": None, "firstAcknowledgedMs": {"0": 20}, "gapMs": {"0": 9}}
    run = build_run(spec_of(**CUT), figures, ControllerTimes(), "")
    assert "does not enforce NetworkPolicies" in run["problem"]
    assert "problem" not in build_run(spec_of(**CUT), figures, ControllerTimes(1500, 1500), "")
    # A controller that was lost meanwhile has no journal: what clients saw is proof enough.
    seen_by_clients = figures | {"electionMs": 1900}
    assert "problem" not in build_run(spec_of(**CUT), seen_by_clients, ControllerTimes(), "")


def test_a_drill_of_the_controller_is_refused_with_words_unless_the_operator_allows_it() -> None:
    world = FakeWorld(manifest(target=CONTROLLER))
    asyncio.run(new_runner(world)._step(dict(world.drill)))
    assert world.drill["status"]["phase"] == "Refused"
    complete = find_condition(world.drill["status"]["conditions"], "Complete")
    assert complete is not None
    assert complete["reason"] == "ControllerDrillsDisabled"
    ((reason, message),) = world.events
    assert (reason, message) == ("DrillRefused", complete["message"])
    assert world.pod is None


def test_a_drill_whose_cluster_is_gone_before_its_pod_is_made_ends() -> None:
    """Its pod was lost, or brokers did not answer, while the load was being prepared."""
    world = FakeWorld(manifest() | {"status": {"phase": "Preparing"}})
    get = world.get

    async def get_others(kind: Any, namespace: str, name: str) -> dict[str, Any]:
        if kind.kind == "LogCluster":
            raise ApiError(404, "NotFound", name)
        return await get(kind, namespace, name)

    world.get = get_others  # type: ignore[method-assign, assignment]
    asyncio.run(new_runner(world)._attend(("ns", "one"), dict(world.drill)))
    assert world.drill["status"]["phase"] == "Finished"
    ((reason, message),) = world.events
    assert (reason, "LogCluster demo is gone" in message) == ("DrillFailed", True)


def test_a_limit_that_is_exceeded_fails_the_drill() -> None:
    world = FakeWorld(manifest(limits={"recoveryMs": 150}))
    go_to_the_end(world)
    passed = next(c for c in world.drill["status"]["conditions"] if c["type"] == "Passed")
    assert passed["status"] == "False"
    assert "180 ms, 150 ms are allowed" in passed["message"]
    assert world.events[0][0] == "DrillFailed"


def test_what_has_ended_is_left_alone() -> None:
    world = FakeWorld(manifest())
    go_to_the_end(world)
    version = world.drill["metadata"]["resourceVersion"]

    async def look_again() -> bool:
        return await new_runner(world)._step(dict(world.drill))

    assert not asyncio.run(look_again())
    assert world.drill["metadata"]["resourceVersion"] == version
