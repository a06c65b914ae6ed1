"""When a cluster may fall asleep, what its objects are meanwhile, and what is said of it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, holdings, pool_view

from fairlead_operator.clusters.hibernation import (
    Hibernation,
    HibernationPhase,
    HibernationSight,
    decide_hibernation,
)
from fairlead_operator.clusters.hibernation_watch import HibernationWatch
from fairlead_operator.clusters.plan import ClusterObserved, ClusterPlan, plan_cluster
from fairlead_operator.clusters.rolling import BrokerState
from fairlead_operator.clusters.status import (
    ClusterFacts,
    PoolFacts,
    build_cluster_status,
    build_pool_status,
)
from fairlead_operator.conditions import is_asleep

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
AWAKE, WAITING, STOPPING, ASLEEP, WAKING = HibernationPhase
PODS = ("demo-main-0", "demo-main-1")


def broker(number: int, **changes: Any) -> BrokerState:
    state = BrokerState(
        broker_id=number,
        pod=f"demo-main-{number}",
        pod_uid=str(number),
        is_outdated=False,
        is_ready=True,
        is_live=True,
    )
    return replace(state, **changes)


def controller(*, moving: int = 0, **counts: int) -> dict[str, Any]:
    return {
        "clusterId": "abc",
        "controller": {"epoch": 7},
        "topics": [{"name": "orders", "reassigning": moving}, {"name": "old"}],
        "partitions": {"partitions": 12, "underReplicated": 0, "offline": 0} | counts,
    }


def decide(**changes: Any) -> Hibernation:
    well = HibernationSight(
        is_wanted=True,
        is_begun=False,
        pods=PODS,
        brokers=(broker(0), broker(1)),
        controller=controller(),
    )
    return decide_hibernation(replace(well, **changes))


def test_a_cluster_that_is_well_falls_asleep_and_wakes() -> None:
    falling = decide()
    assert (falling.phase, falling.sleeps) == (STOPPING, True)
    gone = (broker(0, pod_uid=None, is_ready=False, is_live=False),)
    stopping = decide(is_begun=True, pods=PODS[:1], controller=None, brokers=gone)
    assert (stopping.phase, stopping.sleeps) == (STOPPING, True), "what has begun goes on"
    asleep = decide(is_begun=True, pods=(), brokers=gone)
    assert (asleep.phase, asleep.sleeps) == (ASLEEP, True)
    waking = decide(is_wanted=False, is_begun=True, pods=(), brokers=gone)
    assert (waking.phase, waking.sleeps) == (WAKING, False)
    starting = decide(is_wanted=False, was_asleep=True, brokers=gone)
    assert starting.phase is WAKING
    assert "broker 0" in starting.message
    assert decide(is_wanted=False, was_asleep=True) == Hibernation()


def test_a_cluster_without_brokers_sleeps_at_once() -> None:
    assert decide(pods=(), brokers=(), controller=None).phase is ASLEEP


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"controller": None}, "ControllerNotReachable"),
        ({"paused_pools": ("main",)}, "PoolPaused"),
        ({"pods": (*PODS, "demo-other-0")}, "PodOfNoPool"),
        ({"drill": "nightly"}, "DrillRunning"),
        ({"controller": controller(moving=2)}, "PartitionsMoving"),
        ({"controller": controller(underReplicated=1)}, "PartitionsNotInSync"),
        ({"controller": controller(offline=1)}, "PartitionsNotInSync"),
        ({"brokers": (broker(0), broker(1, is_leaving=True))}, "Draining"),
        ({"brokers": (broker(0), broker(1, draining_s=1.0))}, "Rolling"),
        ({"brokers": (broker(0), broker(1, is_live=False))}, "BrokerNotReady"),
        ({"brokers": (broker(0), broker(1, is_terminating=True))}, "BrokerNotReady"),
        ({"is_paused": True}, "Paused"),
    ],
)
def test_sleep_waits_for_what_goes_on(changes: dict[str, Any], reason: str) -> None:
    waiting = decide(**changes)
    assert (waiting.phase, waiting.sleeps, waiting.reason) == (WAITING, False, reason)
    assert waiting.message


def test_who_is_told_to_sleep_again_while_it_wakes_still_wakes() -> None:
    """Until all are back, unclean elections stay withheld: the status has to go on saying so."""
    again = decide(was_asleep=True, brokers=(broker(0), broker(1, is_ready=False, is_live=False)))
    assert (again.phase, again.sleeps, again.reason) == (WAKING, False, "Waking")
    assert decide(was_asleep=True).phase is STOPPING


def test_a_paused_cluster_stays_as_it_is() -> None:
    for is_wanted in (True, False):
        asleep = decide(is_paused=True, is_begun=True, pods=(), is_wanted=is_wanted)
        assert (asleep.phase, asleep.sleeps) == (ASLEEP, True)
    assert decide(is_paused=True, is_wanted=False) == Hibernation()


def test_a_paused_pool_runs_on_or_sleeps_on() -> None:
    runs = decide(is_begun=True, paused_pools=("main",), pods=PODS)
    assert "its brokers keep running" in runs.message
    sleeps = decide(is_wanted=False, is_begun=True, paused_pools=("main",), pods=())
    assert sleeps.phase is WAKING
    assert "its brokers stay asleep" in sleeps.message


def observed(**changes: Any) -> ClusterObserved:
    nothing = ClusterObserved(
        cluster=cluster_view(), pools=(pool_view(),), live={}, claim_sizes={}, brokers={}
    )
    return replace(nothing, **changes)


def applied(situation: ClusterObserved, plan: ClusterPlan) -> ClusterObserved:
    live = {**situation.live, **{child.key: child.manifest for child in plan.applies}}
    return replace(situation, live=live)


def running(**changes: Any) -> ClusterObserved:
    situation = observed(brokers=holdings(b0=9, b1=9, b2=9), **changes)
    return applied(situation, plan_cluster(situation, SETTINGS))


def replicas(situation: ClusterObserved) -> int:
    return int(situation.live["StatefulSet", "demo-main"]["spec"]["replicas"])


def asleep(situation: ClusterObserved) -> ClusterObserved:
    dozing = replace(situation, sleeps=True)
    return applied(dozing, plan_cluster(dozing, SETTINGS))


def test_only_the_pods_go_and_the_same_brokers_wake() -> None:
    before = running()
    plan = plan_cluster(replace(before, sleeps=True), SETTINGS)
    assert [child.key for child in plan.applies] == [("StatefulSet", "demo-main")]
    assert plan.deletes == ()
    night = asleep(before)
    assert replicas(night) == 0
    assert plan_cluster(night, SETTINGS).is_converged
    (pool,) = plan_cluster(night, SETTINGS).pools
    assert (pool.replicas, pool.is_asleep, pool.blocked) == (3, True, "")
    morning = replace(night, sleeps=False, brokers=None)
    morning = applied(morning, plan_cluster(morning, SETTINGS))
    assert morning.live["StatefulSet", "demo-main"] == before.live["StatefulSet", "demo-main"]


@pytest.mark.parametrize("brokers", [holdings(b0=9, b1=9, b2=9), holdings(b0=0, b1=0), None])
def test_a_pool_that_shall_have_fewer_waits_with_all_its_brokers(brokers: Any) -> None:
    night = asleep(running())
    fewer = replace(night, pools=(pool_view(replicas=1),), brokers=brokers)
    (pool,) = plan_cluster(fewer, SETTINGS).pools
    assert (pool.replicas, pool.blocked_reason) == (3, "Hibernated")
    assert (pool.order, pool.leaving, pool.departed) == (None, (), ())
    woken = plan_cluster(replace(fewer, sleeps=False, brokers=holdings(b0=9, b1=9, b2=9)), SETTINGS)
    assert woken.pools[0].replicas == 3, "they wake, and are emptied then"
    assert woken.pools[0].order is not None


def test_a_pool_that_shall_have_more_gets_them_when_it_wakes() -> None:
    night = asleep(running())
    more = replace(night, pools=(pool_view(replicas=5),))
    (pool,) = plan_cluster(more, SETTINGS).pools
    assert (pool.replicas, pool.blocked) == (3, "")
    assert plan_cluster(replace(more, sleeps=False), SETTINGS).pools[0].replicas == 5


def test_settings_and_volumes_change_for_those_who_wake() -> None:
    night = asleep(running(claim_sizes={f"data-demo-main-{each}": "1Gi" for each in range(3)}))
    larger = replace(
        night, pools=(pool_view(storage={"size": "2Gi"}, config={"log.retention.hours": 3}),)
    )
    plan = plan_cluster(larger, SETTINGS)
    assert {child.key[0] for child in plan.applies} == {"ConfigMap", "StatefulSet"}
    assert (plan.pools[0].volumes.claims, plan.pools[0].volumes.recreates) == ({}, False)
    assert replicas(applied(larger, plan)) == 0
    assert len(plan_cluster(replace(larger, sleeps=False), SETTINGS).pools[0].volumes.claims) == 3


def test_ids_of_brokers_that_sleep_are_taken() -> None:
    night = asleep(running())
    pools = (*night.pools, pool_view("second", idBase=2))
    plan = plan_cluster(replace(night, pools=pools), SETTINGS)
    assert [each.blocked_reason for each in plan.pools] == ["", "IdsOverlap"]


def test_a_cluster_that_is_made_asleep_starts_nobody() -> None:
    night = asleep(observed())
    assert replicas(night) == 0
    woken = replace(night, sleeps=False)
    assert replicas(applied(woken, plan_cluster(woken, SETTINGS))) == 3


def test_a_paused_pool_is_not_stopped() -> None:
    day = running()
    held = replace(day, pools=(pool_view(paused=True),), sleeps=True)
    plan = plan_cluster(held, SETTINGS)
    assert (plan.applies, plan.pools[0].is_asleep) == ((), False)
    night = replace(asleep(day), pools=(pool_view(paused=True),), sleeps=False)
    plan = plan_cluster(night, SETTINGS)
    assert (plan.applies, plan.pools[0].is_asleep) == ((), True)


def claims(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}


def cluster_status(hibernation: Hibernation, before: Any = None, **facts: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "name": "demo",
        "namespace": "shop",
        "generation": 3,
        "wanted": 2,
        "brokers": (broker(0), broker(1)),
        "controller": controller(),
        "store_available": True,
        "hibernation": hibernation,
    }
    return build_cluster_status(ClusterFacts(**(known | facts)), before or {}, NOW)


DOWN = {
    "brokers": tuple(broker(n, pod_uid=None, is_ready=False, is_live=False) for n in range(2)),
    "controller": controller(offline=12, underReplicated=12),
}


def test_a_status_tells_of_the_whole_night() -> None:
    waiting = cluster_status(decide(drill="x"))
    assert claims(waiting)["Hibernated"] == ("False", "DrillRunning")
    assert claims(waiting)["Ready"] == ("True", "Ready")
    assert not is_asleep({"status": waiting})
    stopping = cluster_status(decide(), waiting)
    assert claims(stopping)["Hibernated"] == ("False", "StoppingBrokers")
    assert claims(stopping)["Progressing"] == ("True", "StoppingBrokers")
    night = cluster_status(decide(is_begun=True, pods=()), stopping, **DOWN)
    assert claims(night) == {
        "Ready": ("False", "Hibernated"),
        "Progressing": ("False", "Hibernated"),
        "StoreAvailable": ("True", "Available"),
        "Degraded": ("False", "Hibernated"),
        "Hibernated": ("True", "Asleep"),
    }
    assert (night["brokers"], night["brokersReady"]) == (2, 0)
    assert is_asleep({"status": night})
    waking = cluster_status(
        decide(is_wanted=False, was_asleep=True, brokers=DOWN["brokers"]), night, **DOWN
    )
    assert claims(waking)["Hibernated"] == ("False", "Waking")
    assert claims(waking)["Ready"] == ("False", "Waking")
    assert is_asleep({"status": waking})
    awake = cluster_status(decide(is_wanted=False, was_asleep=True), waking)
    assert "Hibernated" not in claims(awake)
    assert claims(awake)["Ready"] == ("True", "Ready")


def test_a_broker_that_fails_to_wake_is_named() -> None:
    failing = (broker(0), broker(1, is_ready=False, is_live=False, failure="no space left"))
    hibernation = decide(is_wanted=False, was_asleep=True, brokers=failing)
    status = cluster_status(hibernation, brokers=failing)
    assert claims(status)["Ready"] == ("False", "BrokersFailing")


def test_an_unreadable_spec_does_not_wake_anybody() -> None:
    night = cluster_status(decide(is_begun=True, pods=()), **DOWN)
    broken = cluster_status(Hibernation(), night, problem=("InvalidSpec", "x"))
    assert claims(broken)["Hibernated"] == ("True", "Asleep")


@pytest.mark.parametrize(("wanted", "is_blocked"), [(3, False), (1, True), (5, False)])
def test_a_pool_says_that_it_sleeps(wanted: int, is_blocked: bool) -> None:
    night = replace(asleep(running()), pools=(pool_view(replicas=wanted),))
    (plan,) = plan_cluster(night, SETTINGS).pools
    status = build_pool_status(PoolFacts(generation=1, plan=plan), {}, NOW)
    told = claims(status)
    assert (told["Ready"], told["Progressing"]) == (("False", "Hibernated"),) * 2
    assert ("Blocked" in told) == is_blocked
    assert status["brokerIds"] == [0, 1, 2]


class Surroundings:
    """What a HibernationWatch looks at, and the Events that it emits."""

    def __init__(self) -> None:
        self.stateful_sets: list[Any] = []
        self.pods: list[Any] = []
        self.drills: list[Any] = []
        self.brokers = [broker(0), broker(1)]
        self.events: list[str] = []

    def of_cluster(self, kind: Any, _key: Any) -> list[Any]:
        return self.pods if kind.kind == "Pod" else self.stateful_sets

    async def list(self, _kind: Any, _namespace: str) -> Any:
        return SimpleNamespace(items=self.drills)

    async def observe(self, *_: Any) -> dict[str, Any]:
        return {"main": self.brokers}

    async def emit(self, _manifest: Any, reason: str, _message: str, *_: Any) -> None:
        self.events.append(reason)


def test_each_step_of_a_night_is_told_once_and_a_drill_is_waited_for() -> None:
    around: Any = Surroundings()
    watch = HibernationWatch(around, around, around, around)
    manifest: dict[str, Any] = {"metadata": {"name": "demo", "namespace": "shop"}}

    def look(is_wanted: bool) -> HibernationPhase:
        view = cluster_view(hibernated=is_wanted)
        hibernation = asyncio.run(watch.decide(manifest, view, [pool_view()], controller()))
        manifest["status"] = cluster_status(hibernation, manifest.get("status"))
        return hibernation.phase

    around.pods = [{"metadata": {"name": name}} for name in PODS]
    assert look(False) is AWAKE
    drill = {"metadata": {"name": "nightly"}, "spec": {"clusterName": "demo"}}
    around.drills = [drill | {"status": {"phase": "Running"}}]
    for expected in (WAITING, WAITING):
        assert look(True) is expected
    around.drills = []
    assert look(True) is STOPPING
    around.stateful_sets = [
        {"metadata": {"annotations": {"fairlead.io/awake-replicas": "2"}}, "spec": {"replicas": 0}}
    ]
    around.brokers = list(DOWN["brokers"])
    assert look(True) is STOPPING
    around.pods = []
    for expected in (ASLEEP, ASLEEP):
        assert look(True) is expected
    assert look(False) is WAKING
    around.stateful_sets = [{"metadata": {}, "spec": {"replicas": 2}}]
    assert look(False) is WAKING
    around.brokers = [broker(0), broker(1)]
    for expected in (AWAKE, AWAKE):
        assert look(False) is expected
    assert around.events == ["HibernationWaits", "FallingAsleep", "Hibernated", "Waking", "Awake"]
