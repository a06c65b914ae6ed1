"""The status of a LogCluster and of a BrokerPool."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from operator_views import pool_view

from fairlead_model.resources.hibernation import ASLEEP
from fairlead_operator.clusters.broker_states import build_broker_states, pod_failure
from fairlead_operator.clusters.fencing import FenceReport
from fairlead_operator.clusters.hibernation import Hibernation, HibernationPhase
from fairlead_operator.clusters.plan import PoolPlan
from fairlead_operator.clusters.rolling import OUTSIDE_WINDOW, BrokerState, Drain, Wait
from fairlead_operator.clusters.status import (
    ClusterFacts,
    PoolFacts,
    build_cluster_status,
    build_pool_status,
)
from fairlead_operator.conditions import find_condition
from fairlead_operator.resources.condition import CONDITIONS_MAX

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)
CONTROLLER = {
    "clusterId": "abc",
    "controller": {"epoch": 7},
    "topics": [{}, {}],
    "partitions": {"partitions": 12, "underReplicated": 0, "offline": 0},
}


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


def facts(**changes: Any) -> ClusterFacts:
    healthy = ClusterFacts(
        name="demo",
        namespace="shop",
        generation=3,
        wanted=2,
        brokers=(broker(0), broker(1)),
        controller=CONTROLLER,
        controller_pod="fairlead-operator-1",
        store_available=True,
    )
    return replace(healthy, **changes)


def claims(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}


def partitions(**counts: int) -> dict[str, Any]:
    return CONTROLLER | {"partitions": {**CONTROLLER["partitions"], **counts}}  # type: ignore[dict-item]


def test_a_healthy_cluster_says_so_with_counts() -> None:
    status = build_cluster_status(facts(), {}, NOW)
    assert claims(status) == {
        "Ready": ("True", "Ready"),
        "Progressing": ("False", "Settled"),
        "StoreAvailable": ("True", "Available"),
        "Degraded": ("False", "InSync"),
    }
    assert status["bootstrap"] == "demo-bootstrap.shop.svc:9092"
    assert status["controller"] == {"pod": "fairlead-operator-1", "epoch": 7}
    assert (status["brokers"], status["brokersReady"], status["topics"]) == (2, 2, 2)


def test_the_same_facts_give_the_same_status() -> None:
    status = build_cluster_status(facts(), {}, NOW)
    assert build_cluster_status(facts(), status, LATER) == status


def test_the_image_is_pinned_and_a_newer_one_is_told() -> None:
    status = build_cluster_status(facts(image="fairlead:1", upgrade_hint="do this"), {}, NOW)
    assert status["brokerImage"] == "fairlead:1"
    assert claims(status)["UpgradeAvailable"] == ("True", "NewerImage")
    # A pass that has planned nothing keeps both.
    kept = build_cluster_status(facts(problem=("InvalidSpec", "x")), status, LATER)
    assert kept["brokerImage"] == "fairlead:1"
    assert "UpgradeAvailable" in claims(kept)
    done = build_cluster_status(facts(image="fairlead:2"), kept, LATER)
    assert done["brokerImage"] == "fairlead:2"
    assert "UpgradeAvailable" not in claims(done)


@pytest.mark.parametrize(
    ("changes", "condition", "claim"),
    [
        ({"problem": ("InvalidSpec", "x")}, "Ready", ("False", "InvalidSpec")),
        ({"problem": ("InvalidSpec", "x")}, "Progressing", ("False", "InvalidSpec")),
        ({"refused": "no such field"}, "Ready", ("False", "Refused")),
        ({"refused": "no such field"}, "Progressing", ("False", "Refused")),
        ({"wanted": 0, "brokers": ()}, "Ready", ("False", "NoBrokers")),
        ({"controller": partitions(offline=1)}, "Ready", ("False", "PartitionsOffline")),
        ({"controller": partitions(offline=1)}, "Degraded", ("True", "PartitionsOffline")),
        ({"controller": partitions(underReplicated=1)}, "Ready", ("True", "Ready")),
        ({"controller": partitions(underReplicated=1)}, "Degraded", ("True", "UnderReplicated")),
        ({"wanted": 3}, "Ready", ("False", "BrokersNotReady")),
        ({"wanted": 3}, "Progressing", ("True", "StartingBrokers")),
        ({"controller": None}, "Ready", ("Unknown", "ControllerNotReachable")),
        ({"store_available": False}, "StoreAvailable", ("False", "Frozen")),
        ({"store_available": None}, "StoreAvailable", ("Unknown", "ControllerNotReachable")),
        (
            {"controller": None, "store_rolled_back": True},
            "Ready",
            ("False", "StoreRolledBack"),
        ),
        ({"store_rolled_back": True}, "StoreAvailable", ("False", "StoreRolledBack")),
        ({"is_paused": True, "roll": Wait("Paused", "x")}, "Progressing", ("False", "Paused")),
        ({"roll": Drain(1)}, "Progressing", ("True", "Rolling")),
    ],
)
def test_each_trouble_has_its_reason(
    changes: dict[str, Any], condition: str, claim: tuple[str, str]
) -> None:
    assert claims(build_cluster_status(facts(**changes), {}, NOW))[condition] == claim


def test_brokers_are_not_counted_away_while_the_spec_cannot_be_read() -> None:
    before = build_cluster_status(facts(), {}, NOW)
    wrong = ClusterFacts(name="demo", namespace="shop", generation=4, problem=("InvalidSpec", "x"))
    after = build_cluster_status(wrong, before, LATER)
    assert (after["brokers"], after["brokersReady"]) == (2, 2)


def test_the_last_counts_stay_while_the_controller_cannot_be_asked() -> None:
    before = build_cluster_status(facts(), {}, NOW)
    after = build_cluster_status(facts(controller=None), before, LATER)
    assert (after["topics"], after["partitions"], after["clusterId"]) == (2, 12, "abc")


def test_a_pool_says_what_blocks_it_and_stops_saying_so() -> None:
    plan = PoolPlan(pool=pool_view(replicas=2), replicas=2, image="fairlead:1")
    blocked = replace(plan, blocked_reason="ReplicasRemain", blocked="brokers hold replicas")
    brokers = (broker(0), broker(1))
    status = build_pool_status(PoolFacts(generation=1, plan=blocked, brokers=brokers), {}, NOW)
    assert claims(status)["Blocked"] == ("True", "ReplicasRemain")
    status = build_pool_status(PoolFacts(generation=2, plan=plan, brokers=brokers), status, NOW)
    assert "Blocked" not in claims(status)
    assert claims(status)["Ready"] == ("True", "Ready")
    assert status["brokerIds"] == [0, 1]
    assert "fairlead.io/pool=main" in status["selector"]


def test_a_pool_says_who_leaves_and_what_is_left_to_do() -> None:
    plan = PoolPlan(pool=pool_view(replicas=1), replicas=2, image="fairlead:1")
    leaving = replace(plan, leaving=(1,), progress="brokers hold replicas: 1 (7)")
    brokers = (broker(0), broker(1))
    status = build_pool_status(PoolFacts(generation=1, plan=leaving, brokers=brokers), {}, NOW)
    assert (status["draining"], status["brokerIds"]) == ([1], [0, 1])
    assert claims(status)["Progressing"] == ("True", "Draining")
    assert claims(status)["Ready"] == ("True", "Ready")
    said = find_condition(status["conditions"], "Progressing") or {}
    assert said["message"] == "broker 1 will be removed: brokers hold replicas: 1 (7)"
    stuck = replace(leaving, blocked_reason="ReplicasRemain", blocked="no room")
    status = build_pool_status(PoolFacts(generation=1, plan=stuck, brokers=brokers), status, NOW)
    assert claims(status)["Progressing"] == ("False", "ReplicasRemain")
    done = replace(plan, replicas=1)
    status = build_pool_status(PoolFacts(generation=1, plan=done, brokers=brokers[:1]), status, NOW)
    assert "draining" not in status
    assert claims(status)["Progressing"] == ("False", "Settled")


def test_a_cluster_is_not_settled_while_a_pool_shrinks() -> None:
    claim = claims(build_cluster_status(facts(leaving=(3, 4)), {}, NOW))["Progressing"]
    assert claim == ("True", "Draining")


def test_a_refused_pool_does_not_pretend_to_start() -> None:
    plan = PoolPlan(pool=pool_view(replicas=2), replicas=2, blocked_reason="Refused", blocked="why")
    status = build_pool_status(PoolFacts(generation=1, plan=plan), {}, NOW)
    assert claims(status) == {
        "Ready": ("False", "Refused"),
        "Progressing": ("False", "Refused"),
        "Blocked": ("True", "Refused"),
    }


def test_a_pool_that_is_in_the_way_is_not_called_settled() -> None:
    plan = PoolPlan(pool=pool_view(), blocked_reason="IdsOverlap", blocked="ids meet")
    status = build_pool_status(PoolFacts(generation=1, plan=plan), {}, NOW)
    assert claims(status)["Progressing"] == ("False", "IdsOverlap")


def test_brokers_of_a_pool_that_may_not_go_yet_are_still_counted() -> None:
    plan = PoolPlan(pool=pool_view(replicas=2), replicas=2, image="fairlead:1")
    brokers = (broker(0), broker(1))
    before = build_pool_status(PoolFacts(generation=1, plan=plan, brokers=brokers), {}, NOW)
    waits = PoolFacts(generation=2, problem=("ReplicasRemain", "brokers hold replicas"))
    after = build_pool_status(waits, before, LATER)
    assert (after["replicas"], after["readyReplicas"], after["brokerIds"]) == (2, 2, [0, 1])
    gone = PoolFacts(generation=2, problem=("ClusterNotFound", "no such cluster"))
    assert build_pool_status(gone, before, LATER)["replicas"] == 0


def test_a_broker_without_a_pod_leads_to_who_knows_why() -> None:
    plan = PoolPlan(pool=pool_view(replicas=2), replicas=2, image="fairlead:1")
    absent = broker(1, pod_uid=None, is_ready=False, is_live=False)
    status = build_pool_status(
        PoolFacts(generation=1, plan=plan, brokers=(broker(0), absent)), {}, NOW
    )
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "BrokersNotReady"
    assert "broker 1 has no pod yet" in ready["message"]
    assert "kubectl describe statefulset demo-main" in ready["message"]


def test_a_roll_names_the_image_and_counts_pods() -> None:
    plan = PoolPlan(pool=pool_view(replicas=2), replicas=2, image="fairlead:2")
    old = broker(0, is_outdated=True)
    status = build_pool_status(
        PoolFacts(generation=1, plan=plan, brokers=(old, broker(1)), roll=Drain(0)), {}, NOW
    )
    assert status["updatedReplicas"] == 1
    progressing = next(c for c in status["conditions"] if c["type"] == "Progressing")
    assert progressing["reason"] == "Rolling"
    assert "fairlead:2" in progressing["message"]


def stateful_set(replicas: int = 2) -> dict[str, Any]:
    return {
        "metadata": {},
        "spec": {"replicas": replicas},
        "status": {"updateRevision": "new"},
    }


def pod(number: int, revision: str = "new", *, ready: bool = True, **metadata: Any) -> Any:
    labels = {"controller-revision-hash": revision}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": f"demo-main-{number}", "uid": str(number), "labels": labels}
        | metadata,
        "status": {"conditions": conditions},
    }


def test_brokers_are_put_together_from_pods_and_the_controller() -> None:
    pods = {
        "demo-main-0": pod(0, "old"),
        "demo-main-1": pod(1, deletionTimestamp="2026-01-01T00:00:00Z"),
    }
    known: dict[int, dict[str, Any]] = {
        10: {"state": "live", "leaders": 3},
        11: {"state": "fenced"},
    }
    first, second, third = build_broker_states(
        pool_view(idBase=10),
        stateful_set(3),
        pods,
        known,
        draining_s={10: 2.0},
        recovering={},
        refused={},
    )
    assert (first.broker_id, first.is_outdated, first.is_ready, first.is_live) == (
        10,
        True,
        True,
        True,
    )
    assert (first.leaders, first.draining_s) == (3, 2.0)
    assert (second.is_terminating, second.is_ready, second.is_live) == (True, False, False)
    assert third.pod_uid is None


def test_ready_pods_count_as_live_while_nobody_can_be_asked() -> None:
    states = build_broker_states(
        pool_view(),
        stateful_set(1),
        {"demo-main-0": pod(0)},
        None,
        draining_s={},
        recovering={},
        refused={},
    )
    assert states[0].is_live


def broken_pod(container: dict[str, Any], *conditions: dict[str, Any]) -> dict[str, Any]:
    statuses = [{"name": "broker", "ready": False, **container}] if container else []
    status = {"containerStatuses": statuses, "conditions": list(conditions)}
    return {"metadata": {"name": "demo-main-0", "uid": "u", "labels": {}}, "status": status}


@pytest.mark.parametrize(
    ("shown", "failure"),
    [
        (broken_pod({"state": {"running": {}}}), ""),
        (broken_pod({"state": {"waiting": {"reason": "ContainerCreating"}}}), ""),
        (
            broken_pod(
                {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
            ),
            "ErrImagePull: no such image",
        ),
        (
            broken_pod(
                {
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"exitCode": 1, "message": "no disk\nmore"}},
                }
            ),
            "no disk",
        ),
        (
            broken_pod(
                {},
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes",
                },
            ),
            "Unschedulable: 0/3 nodes",
        ),
    ],
)
def test_why_a_pod_does_not_come_up(shown: dict[str, Any], failure: str) -> None:
    assert pod_failure(shown) == failure


def test_a_broker_that_is_turned_away_is_named_with_the_reason() -> None:
    shown = broken_pod({"state": {"running": {}}})
    stateful_set = {"spec": {"replicas": 1}, "metadata": {}}
    (state,) = build_broker_states(
        pool_view(replicas=1),
        stateful_set,
        {"demo-main-0": shown},
        {},
        draining_s={},
        recovering={},
        refused={0: "it belongs to another cluster"},
    )
    status = build_cluster_status(facts(wanted=1, brokers=(state,)), {}, NOW)
    ready = next(entry for entry in status["conditions"] if entry["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "BrokersFailing")
    assert ready["message"] == (
        "0 of 1 brokers are ready; broker 0 (pod demo-main-0): it belongs to another cluster"
    )


def test_what_the_api_server_refuses_is_said() -> None:
    status = build_cluster_status(facts(refused="the API server refuses Service a"), {}, NOW)
    assert claims(status)["Ready"] == ("False", "Refused")


def test_the_generation_of_settings_stays_until_all_brokers_go_by_a_later_one() -> None:
    in_force = build_cluster_status(facts(is_config_in_force=True), {}, NOW)
    assert in_force["configGeneration"] == 3
    rolling = build_cluster_status(facts(generation=4), in_force, LATER)
    assert (rolling["observedGeneration"], rolling["configGeneration"]) == (4, 3)
    refused = build_cluster_status(facts(generation=4, config_problem="no room"), rolling, LATER)
    assert claims(refused)["Progressing"] == ("True", "ConfigNotInForce")


def test_restarts_that_wait_for_a_window_say_until_when() -> None:
    roll = Wait(OUTSIDE_WINDOW, "the next maintenance window begins at 2026-01-03T02:00:00Z")
    waits = facts(roll=roll, next_window="2026-01-03T02:00:00Z")
    status = build_cluster_status(waits, {}, NOW)
    assert claims(status)["Progressing"] == ("True", "WaitingForWindow")
    assert claims(status)["Ready"] == ("True", "Ready")
    assert status["restartsWaitUntil"] == "2026-01-03T02:00:00Z"
    assert build_cluster_status(waits, status, LATER) == status, "nothing to write"
    after = build_cluster_status(facts(next_window="2026-01-03T02:00:00Z"), status, LATER)
    assert "restartsWaitUntil" not in after, "nobody waits"
    assert claims(after)["Progressing"] == ("False", "Settled")


def test_a_status_has_room_for_all_that_can_be_said_of_a_cluster_at_once() -> None:
    """The API server refuses a status with more conditions, and then no status is written."""
    everything = facts(
        is_secured=True,
        upgrade_hint="its brokers run an earlier release",
        fences=FenceReport(fenced=(1,)),
        hibernation=Hibernation(HibernationPhase.ASLEEP, True, ASLEEP, "no broker runs"),
        is_deletion_held=True,
    )
    before = build_cluster_status(everything, {}, NOW)
    status = build_cluster_status(replace(everything, is_paused=True), before, LATER)
    types = {entry["type"] for entry in status["conditions"]}
    assert {"Paused", "Hibernated", "BrokersFenced", "UpgradeAvailable", "Deleting"} < types
    assert len(types) <= CONDITIONS_MAX
