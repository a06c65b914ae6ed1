"""What a failover drill does next, by tables; the whole way with a new operator at every step."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fairlead_kube.errors import ApiError
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.conditions import find_condition
from fairlead_operator.drills import steps
from fairlead_operator.drills.agent_answer import read_agent_state
from fairlead_operator.drills.cuts import CUT_FINALIZER
from fairlead_operator.drills.measurement import ControllerTimes, build_run
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.observations import (
    AgentRun,
    AgentState,
    ClusterObservation,
    ControllerAccess,
    DrillObservations,
    observe_cluster,
)
from fairlead_operator.drills.observer import find_other_drill
from fairlead_operator.drills.runner import DrillRunner
from fairlead_operator.drills.steps import decide_drill_step
from fairlead_operator.specs.names import CLUSTER_LABEL, CUT_LABEL, RESTART_ANNOTATION

WELL = ClusterObservation(brokers_expected=3, live=frozenset({0, 1, 2}), controller_epoch=4)


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {
            "name": "one",
            "namespace": "ns",
            "uid": "uid-of-this-drill",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"clusterName": "demo", "target": {"type": "Leader"}, "fault": {"type": "Kill"}}
        | spec,
    }


def spec_of(**spec: Any) -> FailoverDrillSpec:
    return FailoverDrillSpec.from_manifest(manifest(**spec))


def agent(phase: str, since_ms: int = 0, run: AgentRun | None = None, **more: Any) -> AgentState:
    fields = {"is_well": True, "problem": "", "partitions": {}} | more
    return AgentState(phase=phase, since_ms=since_ms, run=run, **fields)


def fault(**more: Any) -> AgentRun:
    fields: dict[str, Any] = {
        "number": 1,
        "is_injected": True,
        "is_ended": False,
        "since_fault_ms": 5000,
        "is_recovered": True,
        "memo": {"controllerEpoch": 4},
        "figures": {},
    }
    return AgentRun(**(fields | more))


def seen(state: AgentState | None = None, **more: Any) -> DrillObservations:
    fields: dict[str, Any] = {"cluster": WELL, "pod": "Running", "agent": state} | more
    return DrillObservations(**fields)


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


class FakeWorld:
    """The API server, the controller, the drill's pod and the Events of one drill."""

    def __init__(self, drill: dict[str, Any]) -> None:
        self.drill = drill
        self.pod: dict[str, Any] | None = None
        self.policy: dict[str, Any] | None = None
        self.labels: dict[str, Any] = {CLUSTER_LABEL: "demo"}
        self.phase, self.run, self.injected = "settling", None, []
        self.events: list[tuple[str, str]] = []
        self.epoch = 4
        self.starts = 1
        self.restarts: list[str] = []
        self.loss_of_two = (0, 0, 0)
        self.verdict: dict[str, Any] | None = None

    async def get(self, kind: Any, _namespace: str, name: str) -> dict[str, Any]:
        if kind.kind == "Pod" and name == "demo-p-1":
            return {"metadata": {"name": name, "uid": "uid-of-1", "labels": self.labels}}
        if kind.kind == "Pod" and self.pod is not None:
            return self.pod
        if kind.kind == "NetworkPolicy" and self.policy is not None:
            return self.policy
        if kind.kind == "LogCluster":
            metadata = {"name": name, "namespace": "ns", "uid": "c"}
            kinds = {"apiVersion": "fairlead.io/v1alpha1", "kind": "LogCluster"}
            return kinds | {"metadata": metadata, "spec": {}}
        raise ApiError(404, "NotFound", name)

    async def list(self, _kind: Any, _namespace: str) -> Any:
        pool = {"metadata": {"name": "p"}, "spec": {"clusterName": "demo", "replicas": 3}}
        return type("Listed", (), {"items": [pool]})

    async def create(self, kind: Any, _namespace: str, body: dict[str, Any]) -> None:
        if kind.kind == "NetworkPolicy":
            if self.policy is not None:
                raise ApiError(409, "AlreadyExists", "policy")
            self.policy = body
            return
        body["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
        body["metadata"]["creationTimestamp"] = datetime.now(UTC).isoformat()
        self.pod = body

    async def patch(
        self, kind: Any, _namespace: str, name: str, patch: Any, *, subresource: str | None = None
    ) -> dict[str, Any]:
        metadata = self.drill["metadata"]
        if kind.kind == "LogCluster":
            self.restarts.append(patch["metadata"]["annotations"][RESTART_ANNOTATION])
            self.starts = 2
            return {}
        if kind.kind == "Pod":
            assert (name, patch["metadata"]["uid"]) == ("demo-p-1", "uid-of-1")
            self.labels |= patch["metadata"]["labels"]
            if self.labels[CUT_LABEL] is not None:
                # Whoever finds the label knows what it is of, and the policy is there already.
                assert self.policy is not None
                assert self.drill["status"]["cut"]["pods"][0]["uid"] == "uid-of-1"
                assert CUT_FINALIZER in metadata["finalizers"]
                self.injected.append((1, "cut"))
            return {}
        if subresource is None:
            assert patch["metadata"].pop("resourceVersion") == metadata["resourceVersion"]
            version = str(int(metadata["resourceVersion"]) + 1)
            changed = metadata | patch["metadata"] | {"resourceVersion": version}
            self.drill = self.drill | {"metadata": changed}
            return self.drill
        assert patch["metadata"]["resourceVersion"] == metadata["resourceVersion"]
        version = str(int(metadata["resourceVersion"]) + 1)
        self.drill = self.drill | {
            "status": {key: it for key, it in patch["status"].items() if it is not None},
            "metadata": metadata | {"resourceVersion": version},
        }
        return self.drill

    async def delete(self, kind: Any, *_where: str) -> None:
        if kind.kind == "NetworkPolicy":
            # Without a policy a pod with the label would be open to everybody.
            assert self.labels.get(CUT_LABEL) is None
            self.policy = None
        else:
            self.pod = None

    async def emit(self, _drill: Any, reason: str, message: str, *_type: str, action: str) -> None:
        self.events.append((reason, message))

    async def cluster_status(self, *_cluster: str) -> dict[str, Any]:
        return {
            "brokers": [
                {
                    "id": i,
                    "state": "live",
                    "epoch": 10 * self.starts + i,
                    "hostName": f"node-{i // 2}",
                    "rack": "ab"[i // 2],
                }
                for i in range(3)
            ],
            "partitions": {"underReplicated": 0, "offline": 0},
            "controller": {"epoch": self.epoch, "pid": 1},
        }

    async def inject_fault(self, _ns: str, _name: str, broker: int, kind: str, **_: int) -> None:
        self.injected.append((broker, kind))

    async def loss(self, _ns: str, _name: str, brokers: Any) -> dict[str, int]:
        counts = ("leadersMove", "withoutLeader", "belowMinimum", "lastCopies")
        figures = (5, *self.loss_of_two) if len(brokers) > 1 else (1, 0, 0, 0)
        return dict(zip(counts, figures, strict=True))

    async def moves(self, *_cluster: str, since_ms: int) -> dict[str, Any]:
        at = since_ms + 1
        return {
            "decisions": [
                {"atMs": at + 60, "what": "broker 1 is fenced: connection refused"},
                {"atMs": at + 70, "what": "broker 0 is fenced: connection refused"},
            ],
            "moves": [{"atMs": at + 80, "from": 1, "to": 2}, {"atMs": at + 9000, "from": 1}],
        }

    async def state(self, _address: Any) -> AgentState:
        """Time passes: what was begun has come to its end by the next look."""
        if self.phase == "settling":
            self.phase = "steady"
        elif self.phase == "verifying":
            self.phase = "verified"
            counts = ("lost", "duplicated", "reordered", "misplaced", "foreign")
            self.verdict = dict.fromkeys(counts, 0) | {"acknowledged": 9, "clientErrors": {}}
        return self._answer()

    def _answer(self) -> AgentState:
        return read_agent_state(
            {
                "phase": self.phase,
                "problem": None,
                "sinceMs": 60_000,
                "isWell": True,
                "partitions": {"0": {"leader": 1, "isr": [1, 2, 0]}},
                "run": self.run,
                "verdict": self.verdict,
            }
        )

    async def begin(self, _at: Any, number: int, _ids: Any, memo: dict[str, Any]) -> AgentState:
        self.phase = "observing"
        self.run = {
            "number": number,
            "memo": memo,
            "isInjected": False,
            "isEnded": False,
            "sinceFaultMs": 20_000,
            "isRecovered": True,
            "partitionsLed": 2,
            "electionMs": 95,
            "firstAcknowledgedMs": {"0": 110, "1": 130, "2": 180},
            "clientRecoveryMs": 200,
            "gapMs": {"0": 150, "1": 140, "2": 210},
            "wholeMs": 2500,
        }
        return self._answer()

    async def tell(self, _at: Any, number: int, what: str) -> AgentState:
        assert self.run is not None
        assert self.run["number"] == number
        if what == "injected":
            self.run["isInjected"] = True
        elif what == "end":
            self.run["isEnded"] = True
            self.phase = "settling"
        else:
            self.run, self.phase = None, "settling"
        return self._answer()

    async def verify(self, _at: Any) -> AgentState:
        self.phase = "verifying"
        return self._answer()

    async def close(self) -> None:
        return


class OperatorDiedError(BaseException):
    """Raised in the middle of a step."""


def new_runner(world: Any) -> DrillRunner:
    return DrillRunner(
        world,
        world,
        world,
        metrics=DrillMetrics(CollectorRegistry()),
        default_image="image",
        agents=world,
    )


def go_to_the_end(world: FakeWorld, *, lives: int | None = None) -> int:
    """With a new operator for every step; the n-th call to the world kills one, if asked."""
    calls = 0

    async def go() -> None:
        nonlocal calls
        for name in ("create", "patch", "delete", "begin", "tell", "verify", "inject_fault"):
            act = getattr(world, name)

            async def counted(*a: Any, act: Any = act, **k: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == lives:
                    raise OperatorDiedError
                return await act(*a, **k)

            setattr(world, name, counted)
        for _ in range(100):
            try:
                drill = world.drill | {"metadata": dict(world.drill["metadata"])}
                await new_runner(world)._step(drill)
            except OperatorDiedError:
                continue
            is_over = (world.drill.get("status") or {}).get("phase") == "Finished"
            if is_over and world.pod is None:
                return
        raise AssertionError(world.drill.get("status"))

    asyncio.run(go())
    return calls


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
