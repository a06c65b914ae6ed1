"""What a cluster's objects should be, given what is there."""

from dataclasses import replace
from typing import Any

from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_operator.apply_decision import is_covered, needs_apply, with_hash
from fairlead_operator.cluster_plan import ClusterObserved, ClusterPlan, plan_cluster
from fairlead_operator.pool_decisions import decide_growth, decide_ids, decide_scale


def observed(**changes: Any) -> ClusterObserved:
    nothing = ClusterObserved(
        cluster=cluster_view(),
        pools=(pool_view(),),
        live={},
        claim_sizes={},
        replicas_by_broker={},
    )
    return replace(nothing, **changes)


def applied(situation: ClusterObserved, plan: ClusterPlan) -> ClusterObserved:
    """The situation after everything planned was applied."""
    return replace(
        situation,
        live={**situation.live, **{child.key: child.manifest for child in plan.applies}},
    )


def names(plan: ClusterPlan) -> set[tuple[str, str]]:
    return {child.key for child in plan.applies}


def test_everything_is_made_and_then_nothing() -> None:
    situation = observed()
    plan = plan_cluster(situation, SETTINGS)
    assert names(plan) == {
        ("Service", "demo-brokers"),
        ("Service", "demo-bootstrap"),
        ("PodDisruptionBudget", "demo"),
        ("NetworkPolicy", "demo-brokers"),
        ("ConfigMap", "demo-main"),
        ("StatefulSet", "demo-main"),
    }
    assert plan_cluster(applied(situation, plan), SETTINGS).is_converged


def test_only_what_differs_is_touched() -> None:
    situation = applied(observed(), plan_cluster(observed(), SETTINGS))
    larger = replace(situation, pools=(pool_view(replicas=5),))
    assert names(plan_cluster(larger, SETTINGS)) == {("StatefulSet", "demo-main")}
    missing = {key: value for key, value in situation.live.items() if key[1] != "demo-bootstrap"}
    again = plan_cluster(replace(situation, live=missing), SETTINGS)
    assert names(again) == {("Service", "demo-bootstrap")}


def test_what_nobody_asks_for_any_more_is_deleted() -> None:
    situation = applied(observed(), plan_cluster(observed(), SETTINGS))
    without = replace(situation, cluster=cluster_view(networkPolicy={"enabled": False}))
    plan = plan_cluster(without, SETTINGS)
    assert [child.key for child in plan.deletes] == [("NetworkPolicy", "demo-brokers")]
    foreign = {"metadata": {"name": "other", "ownerReferences": [{"uid": "someone"}]}}
    live = {**situation.live, ("Service", "other"): foreign}
    assert not plan_cluster(replace(situation, live=live), SETTINGS).deletes


def test_brokers_wait_for_the_addresses_that_they_tell() -> None:
    listener = {"name": "outside", "type": "NodePort", "port": 9095}
    situation = observed(cluster=cluster_view(listeners=[listener]))
    plan = plan_cluster(situation, SETTINGS)
    assert plan.pools[0].blocked_reason == "WaitingForAddresses"
    assert plan.pools[0].replicas == 0
    situation = applied(situation, plan)
    live = dict(situation.live)
    for ordinal in range(3):
        key = ("Service", f"demo-outside-{ordinal}")
        port = {**live[key]["spec"]["ports"][0], "nodePort": 30000 + ordinal}
        live[key] = {**live[key], "spec": {**live[key]["spec"], "ports": [port]}}
    plan = plan_cluster(replace(situation, live=live), SETTINGS)
    assert (plan.pools[0].blocked_reason, plan.pools[0].replicas) == ("", 3)
    assert names(plan) == {("ConfigMap", "demo-main"), ("StatefulSet", "demo-main")}


def test_without_an_image_nothing_is_started() -> None:
    plan = plan_cluster(observed(), replace(SETTINGS, broker_image=""))
    assert plan.pools[0].blocked_reason == "NoImage"
    assert ("StatefulSet", "demo-main") not in names(plan)


def test_of_two_pools_whose_ids_meet_the_older_one_is_kept() -> None:
    older, younger = pool_view("a", replicas=3), pool_view("b", idBase=2)
    assert set(decide_ids([older, younger], {}).refused) == {"b"}
    assert not decide_ids([older, pool_view("b", idBase=3)], {}).refused
    nobody = [pool_view("a", replicas=0), pool_view("b", replicas=0)]
    assert decide_ids(nobody, {}).refused
    plan = plan_cluster(observed(pools=(older, younger)), SETTINGS)
    assert [pool.blocked_reason for pool in plan.pools] == ["", "IdsOverlap"]


def test_a_pool_does_not_grow_into_the_ids_of_brokers_that_run() -> None:
    older, younger = pool_view("a"), pool_view("b", idBase=4, replicas=2)
    situation = observed(pools=(older, younger))
    situation = applied(situation, plan_cluster(situation, SETTINGS))
    for count, reason, replicas in ((4, "", 4), (5, "IdsOverlap", 3)):
        grown = replace(situation, pools=(pool_view("a", replicas=count), younger))
        first, second = plan_cluster(grown, SETTINGS).pools
        assert (first.blocked_reason, first.replicas) == (reason, replicas)
        assert (second.blocked_reason, second.replicas) == ("", 2), "what runs goes on"
    assert "StatefulSet demo-b (4 to 5): set replicas to 4 at most" in first.blocked


def test_ids_are_taken_while_brokers_run_with_them_whatever_became_of_their_pool() -> None:
    """A pool that is going, or shall shrink and may not yet, still has its brokers."""
    situation = applied(observed(), plan_cluster(observed(), SETTINGS))
    other = replace(situation, pools=(pool_view("b", idBase=2),))
    (plan,) = plan_cluster(other, SETTINGS).pools
    assert plan.blocked_reason == "IdsOverlap"
    assert "StatefulSet demo-main (0 to 2)" in plan.blocked
    shrinking = pool_view(replicas=1)
    both = replace(
        situation, pools=(shrinking, pool_view("b", idBase=1)), replicas_by_broker={2: 9}
    )
    assert [pool.blocked_reason for pool in plan_cluster(both, SETTINGS).pools] == [
        "ReplicasRemain",
        "IdsOverlap",
    ]


def test_a_pool_grows_at_once_and_shrinks_only_when_empty() -> None:
    pool = pool_view(replicas=2, idBase=10)
    assert decide_scale(pool, None, None, {}).replicas == 2
    assert decide_scale(pool, 1, None, {}).replicas == 2
    assert decide_scale(pool, 3, {10: 9, 11: 9, 12: 0}, {}).replicas == 2
    assert decide_scale(pool, 3, {10: 9}, {}).replicas == 2, "a broker that never registered"
    refused = decide_scale(pool, 3, {10: 9, 11: 9, 12: 1}, {})
    assert refused.replicas == 3
    assert "12 (1)" in refused.blocked
    unknown = decide_scale(pool, 3, None, {})
    assert unknown.replicas == 3
    assert "controller" in unknown.blocked


def test_claims_grow_before_the_stateful_set_is_made_anew() -> None:
    pool = pool_view(storage={"size": "2Gi"})
    assert decide_growth(pool, None, {}).template_size == "2Gi"
    first = decide_growth(pool, "1Gi", {"data-demo-main-0": "1Gi", "data-demo-main-1": "2048Mi"})
    assert (first.claims, first.recreates) == (("data-demo-main-0",), False)
    assert first.held_size == "2048Mi", "what one volume has got cannot be taken back"
    second = decide_growth(pool, "1Gi", {"data-demo-main-0": "2Gi"})
    assert (second.claims, second.recreates) == ((), True)
    done = decide_growth(pool, "2Gi", {"data-demo-main-0": "2Gi"})
    assert (done.claims, done.recreates, done.template_size) == ((), False, "2Gi")


def test_what_others_add_to_an_object_does_not_matter() -> None:
    wanted = {"spec": {"ports": [{"port": 1}], "cpu": "1000m", "labels": {}}}
    live = {"spec": {"ports": [{"port": 1, "nodePort": 9}], "cpu": "1", "type": "ClusterIP"}}
    assert is_covered(wanted, live)
    assert not is_covered({"spec": {"ports": []}}, live)
    assert not is_covered({"spec": {"type": "NodePort"}}, live)


def test_a_field_that_is_no_longer_set_is_noticed() -> None:
    before = with_hash({"metadata": {"name": "a"}, "spec": {"a": 1, "b": 2}})
    after = with_hash({"metadata": {"name": "a"}, "spec": {"a": 1}})
    assert not needs_apply(before, before)
    assert needs_apply(after, before)
    assert needs_apply(after, None)


def test_offsets_are_copied_over_the_brokers_of_all_pools() -> None:
    pools = (pool_view("a", replicas=1), pool_view("b", replicas=1, idBase=10))
    plan = plan_cluster(observed(pools=pools), SETTINGS)
    texts = [
        child.manifest["data"]["server.properties"]
        for child in plan.applies
        if child.kind.kind == "ConfigMap"
    ]
    assert len(texts) == 2
    assert all("offsets.topic.replication.factor=2\n" in text for text in texts)
