"""A pool whose StatefulSet is away while its brokers are there, or says less than there is."""

from dataclasses import replace
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_operator.clusters.plan import ClusterObserved, PoolPlan, plan_cluster
from fairlead_operator.clusters.pool_decisions import PoolTraces, count_brokers
from fairlead_operator.clusters.pool_volumes import decide_volumes
from fairlead_operator.clusters.scale_down import BrokerHoldings, ScaleDownOrder
from fairlead_operator.clusters.volume_use import ClaimUse
from fairlead_operator.specs.claim_template import ClaimTemplate

STATEFUL_SET = ("StatefulSet", "demo-main")
FIVE_PODS = tuple(f"demo-main-{ordinal}" for ordinal in range(5))
FIVE_CLAIMS = {f"data-demo-main-{ordinal}": "1Gi" for ordinal in range(5)}
NINE = BrokerHoldings(replicas=9)
ALL_HOLD = dict.fromkeys(range(5), NINE)
EMPTY = BrokerHoldings(is_drained=True)


def observed(**changes: Any) -> ClusterObserved:
    """Five brokers that hold replicas, and a pool that wants three."""
    situation = ClusterObserved(
        cluster=cluster_view(),
        pools=(pool_view(replicas=3),),
        live={},
        claim_sizes=FIVE_CLAIMS,
        brokers=ALL_HOLD,
        pods=FIVE_PODS,
        registered=dict(enumerate(FIVE_PODS)),
    )
    return replace(situation, **changes)


def applied(situation: ClusterObserved) -> ClusterObserved:
    plan = plan_cluster(situation, SETTINGS)
    live = {**situation.live, **{child.key: child.manifest for child in plan.applies}}
    return replace(situation, live=live)


def only(situation: ClusterObserved) -> PoolPlan:
    (plan,) = plan_cluster(situation, SETTINGS).pools
    return plan


def made(plan: PoolPlan) -> int | None:
    """For how many brokers a StatefulSet is to be made."""
    for child in plan.children:
        if child.key == STATEFUL_SET:
            return int(child.manifest["spec"]["replicas"])
    return None


def test_volumes_that_grow_take_no_broker_away_that_holds_replicas() -> None:
    situation = applied(observed(pools=(pool_view(replicas=5),)))
    situation = replace(situation, pools=(pool_view(replicas=3, storage={"size": "2Gi"}),))
    first = only(situation)
    assert (first.leaving, len(first.volumes.claims)) == ((3, 4), 5)
    grown = replace(situation, claim_sizes=dict.fromkeys(FIVE_CLAIMS, "2Gi"))
    assert only(grown).volumes.recreates
    without = {key: each for key, each in grown.live.items() if key != STATEFUL_SET}
    again = only(replace(grown, live=without))
    assert (made(again), again.leaving) == (5, (3, 4))
    assert "3 (9), 4 (9)" in again.progress
    assert again.order == ScaleDownOrder(leaving=(3, 4), is_news=True)
    half = {**ALL_HOLD, 3: replace(NINE, is_drained=True), 4: EMPTY}
    assert made(only(replace(grown, live=without, brokers=half))) == 4


@pytest.mark.parametrize(
    "there",
    [
        {"pods": FIVE_PODS, "claim_sizes": {}, "registered": {}},
        {"pods": (), "claim_sizes": FIVE_CLAIMS, "registered": {}},
        {"pods": (), "claim_sizes": {}, "registered": dict(enumerate(FIVE_PODS))},
    ],
    ids=["pods", "claims", "registered"],
)
def test_whoever_holds_replicas_comes_again(there: dict[str, Any]) -> None:
    assert made(only(observed(**there))) == 5


def test_empty_brokers_may_go_and_old_volumes_bring_nobody_back() -> None:
    assert made(only(observed(brokers={0: NINE, 1: NINE, 2: NINE}))) == 3
    left_long_ago = observed(brokers={0: NINE, 1: NINE, 2: NINE}, pods=FIVE_PODS[:3])
    assert (made(only(left_long_ago)), only(left_long_ago).blocked) == (3, "")
    assert made(only(observed(brokers={3: NINE}))) == 4, "the last one has never registered"
    assert made(only(observed(brokers={4: EMPTY, 3: NINE}))) == 4
    assert made(only(observed(brokers={4: replace(EMPTY, is_drained=False)}))) == 5
    assert made(only(observed(brokers={3: NINE}, pods=()))) == 4


@pytest.mark.parametrize("there", [{"claim_sizes": {}}, {"pods": ()}], ids=["pods", "claims"])
def test_nobody_goes_while_the_controller_cannot_be_asked(there: dict[str, Any]) -> None:
    plan = only(observed(brokers=None, registered={}, **there))
    assert (made(plan), plan.blocked_reason) == (5, "ReplicasRemain")
    assert "controller" in plan.blocked
    first = only(observed(brokers=None, registered={}, pods=(), claim_sizes={}))
    assert (made(first), first.blocked) == (3, ""), "a new pool does not wait"


def test_a_stateful_set_that_somebody_made_smaller_gets_its_brokers_back() -> None:
    situation = applied(observed(brokers={}, pods=()))
    assert made(only(situation)) == 3
    smaller = replace(situation, brokers=ALL_HOLD)
    assert (made(only(smaller)), only(smaller).leaving) == (5, (3, 4))
    unknown = replace(situation, brokers=None)
    assert made(only(unknown)) == 3, "volumes that are kept bring nobody back beside it"


def test_brokers_that_run_do_not_wait_for_addresses_of_new_listeners() -> None:
    listener = {"name": "outside", "type": "NodePort", "port": 9095}
    plan = only(observed(cluster=cluster_view(listeners=[listener])))
    assert (plan.blocked_reason, made(plan)) == ("WaitingForAddresses", 5)


def test_no_other_pool_gets_the_ids_of_brokers_without_stateful_set() -> None:
    younger = pool_view("b", idBase=4)
    first, second = plan_cluster(observed(pools=(pool_view(replicas=3), younger)), SETTINGS).pools
    assert (first.replicas, second.blocked_reason) == (5, "IdsOverlap")


def test_ids_that_another_pool_runs_with_are_not_taken_for_ours() -> None:
    traces, counts = PoolTraces(pods=range(3), claims=range(5)), dict.fromkeys(range(5), 9)
    assert count_brokers(0, 3, traces, dict.fromkeys(range(5), 9)) == 5
    assert count_brokers(0, 3, traces, counts, {"demo-b": range(3, 5)}) == 3
    assert count_brokers(0, None, traces, counts, {"demo-b": range(3, 5)}) == 3


def test_names_of_other_pools_are_told_apart() -> None:
    traces = PoolTraces.find(
        "demo-main",
        pods=["demo-main-0", "demo-main-2-7", "demo-mainly-3", "client"],
        claims=[
            "data-demo-main-1",
            "data-12-demo-main-2",
            "data-x-demo-main-3",
            "data-demo-main-x",
            "demo-main-6",
            "logs-demo-main-9",
        ],
        registered=["demo-main-4", "demo-b-5", ""],
    )
    assert (traces.pods, traces.claims, traces.registered) == ({0}, {1, 2}, {4})


def test_volumes_that_are_smaller_grow_although_nothing_says_their_size_any_more() -> None:
    pool = pool_view(storage={"size": "2Gi"})
    decision = decide_volumes(pool, 1, None, {"data-demo-main-0": "1Gi"}, (), use=ClaimUse())
    assert (decision.claims, decision.recreates) == ({"data-demo-main-0": "2Gi"}, False)
    assert (decision.templates[0].size, decision.held[0].size) == ("2Gi", "1Gi")
    grown = (ClaimTemplate(volume=0, size="2Gi"),)
    later = decide_volumes(pool, 1, grown, {"data-demo-main-0": "1Gi"}, (), use=ClaimUse())
    assert (later.claims, later.recreates) == ({"data-demo-main-0": "2Gi"}, False)
