"""What a cluster's objects should be, given what is there."""

from dataclasses import replace
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, holdings, pool_view

from fairlead_model.release import RELEASE
from fairlead_operator.clusters.broker_image import choose_image, upgrade_hint
from fairlead_operator.clusters.plan import ClusterObserved, ClusterPlan, plan_cluster
from fairlead_operator.clusters.pool_decisions import decide_ids, decide_scale
from fairlead_operator.specs.apply_decision import is_covered, needs_apply, with_hash

TCP = {"protocol": "TCP"}


def observed(**changes: Any) -> ClusterObserved:
    nothing = ClusterObserved(
        cluster=cluster_view(),
        pools=(pool_view(),),
        live={},
        claim_sizes={},
        brokers={},
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


def test_the_budget_says_how_many_brokers_may_go_now() -> None:
    situation = applied(observed(), plan_cluster(observed(), SETTINGS))
    assert situation.live["PodDisruptionBudget", "demo"]["spec"]["maxUnavailable"] == 1
    plan = plan_cluster(replace(situation, max_unavailable=0), SETTINGS)
    assert names(plan) == {("PodDisruptionBudget", "demo")}
    closed = applied(situation, plan)
    assert closed.live["PodDisruptionBudget", "demo"]["spec"]["maxUnavailable"] == 0
    assert plan_cluster(replace(closed, max_unavailable=0), SETTINGS).is_converged


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


def with_balancers(live: Any, ips: list[str]) -> dict[Any, Any]:
    """The brokers' Services, each with a balancer of this address; none where it is empty."""
    given = dict(live)
    for ordinal, ip in enumerate(ips):
        key = ("Service", f"demo-public-{ordinal}")
        balancer = {"ingress": [{"ip": ip}]} if ip else {}
        given[key] = {**given[key], "status": {"loadBalancer": balancer}}
    return given


def told_addresses(situation: ClusterObserved, broker_id: int) -> str:
    data = situation.live["ConfigMap", "demo-main"]["data"]
    return str(data.get(f"broker-{broker_id}.properties", ""))


def test_a_broker_whose_balancer_has_no_address_for_a_while_keeps_the_one_that_it_tells() -> None:
    """If it restarted meanwhile, it would send clients of the outside to its pod's own name."""
    listener = {"name": "public", "type": "LoadBalancer", "port": 9096}
    situation = observed(cluster=cluster_view(listeners=[listener]))
    situation = applied(situation, plan_cluster(situation, SETTINGS))
    known = with_balancers(situation.live, ["192.0.2.1", "fd00::2", "192.0.2.3"])
    situation = replace(situation, live=known)
    situation = applied(situation, plan_cluster(situation, SETTINGS))
    assert "PUBLIC://192.0.2.1:9096" in told_addresses(situation, 0)
    assert "PUBLIC://[fd00::2]:9096" in told_addresses(situation, 1)

    gone = replace(situation, live=with_balancers(situation.live, ["", "", "192.0.2.4"]))
    plan = plan_cluster(gone, SETTINGS)
    assert plan.pools[0].blocked_reason == ""
    gone = applied(gone, plan)
    assert told_addresses(gone, 0) == told_addresses(situation, 0)
    assert told_addresses(gone, 1) == told_addresses(situation, 1)
    assert "PUBLIC://192.0.2.4:9096" in told_addresses(gone, 2)
    assert plan_cluster(gone, SETTINGS).is_converged

    # A new broker still waits for an address of its own.
    more = plan_cluster(replace(gone, pools=(pool_view(replicas=4),)), SETTINGS)
    assert (more.pools[0].blocked_reason, more.pools[0].replicas) == ("WaitingForAddresses", 3)


def test_without_an_image_nothing_is_started() -> None:
    plan = plan_cluster(observed(), replace(SETTINGS, broker_image=""))
    assert plan.pools[0].blocked_reason == "NoImage"
    assert ("StatefulSet", "demo-main") not in names(plan)


LATER = replace(SETTINGS, broker_image="fairlead:2")
"""The settings of an operator that was upgraded."""


@pytest.mark.parametrize("is_status_lost", [False, True])
def test_an_upgraded_operator_restarts_no_broker(is_status_lost: bool) -> None:
    """A status that a restore has dropped is made up for by what runs."""
    first = observed()
    plan = plan_cluster(first, SETTINGS)
    pinned = "" if is_status_lost else plan.image
    cluster = replace(first.cluster, pinned_image=pinned)
    situation = applied(replace(first, cluster=cluster), plan)
    later = plan_cluster(situation, LATER)
    assert later.image == "fairlead:1"
    assert later.applies == ()
    # A pool that is added gets the same image.
    more = replace(situation, pools=(*situation.pools, pool_view("more", idBase=100)))
    assert {pool.image for pool in plan_cluster(more, LATER).pools} == {"fairlead:1"}


def test_brokers_change_when_the_version_says_so() -> None:
    situation = replace(observed(), cluster=cluster_view(version=RELEASE))
    situation = applied(situation, plan_cluster(situation, SETTINGS))
    plan = plan_cluster(situation, LATER)
    assert plan.image == "fairlead:2"
    assert names(plan) == {("StatefulSet", "demo-main")}


@pytest.mark.parametrize(
    ("spec", "pinned", "image", "hint"),
    [
        ({}, "", "fairlead:2", ""),
        ({}, "fairlead:1", "fairlead:1", "brokers keep fairlead:1; spec.version: "),
        ({"version": RELEASE}, "fairlead:1", "fairlead:2", ""),
        ({"version": "7.7"}, "fairlead:1", "fairlead:1", "spec.version is 7.7, and this "),
        ({"image": "own:3", "version": RELEASE}, "fairlead:1", "own:3", ""),
    ],
)
def test_the_resource_chooses_the_image(
    spec: dict[str, Any], pinned: str, image: str, hint: str
) -> None:
    cluster = replace(cluster_view(**spec), pinned_image=pinned)
    assert choose_image(cluster, (), LATER) == image
    said = upgrade_hint(cluster, image, LATER)
    assert said.startswith(hint)
    assert bool(said) == bool(hint)


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
    both = replace(situation, pools=(shrinking, pool_view("b", idBase=1)), brokers=holdings(b2=9))
    first, second = plan_cluster(both, SETTINGS).pools
    assert (first.replicas, first.leaving) == (3, (1, 2))
    assert second.blocked_reason == "IdsOverlap"


def test_a_pool_grows_at_once_and_shrinks_only_when_empty() -> None:
    pool = pool_view(replicas=2, idBase=10)
    assert decide_scale(pool, 0, None, {}).replicas == 2
    assert decide_scale(pool, 1, None, {}).replicas == 2
    assert decide_scale(pool, 3, holdings(b10=9, b11=9, b12=0, drained=(12,)), {}).replicas == 2
    assert decide_scale(pool, 3, holdings(b10=9), {}).replicas == 2, (
        "a broker that never registered"
    )
    for brokers in (
        holdings(b10=9, b11=9, b12=1, drained=(12,)),
        holdings(b10=9, b11=9, b12=0),
    ):
        waits = decide_scale(pool, 3, brokers, {})
        assert (waits.replicas, waits.leaving, waits.blocked) == (3, (12,), "")
    unknown = decide_scale(pool, 3, None, {})
    assert unknown.replicas == 3
    assert "controller" in unknown.blocked


def test_what_others_add_to_an_object_does_not_matter() -> None:
    wanted = {"spec": {"ports": [{"port": 1}], "cpu": "1000m", "labels": {}}}
    live = {"spec": {"ports": [{"port": 1, "nodePort": 9}], "cpu": "1", "type": "ClusterIP"}}
    assert is_covered(wanted, live)
    assert not is_covered({"spec": {"ports": []}}, live)
    assert not is_covered({"spec": {"type": "NodePort"}}, live)


def test_hashes_that_look_like_huge_numbers_are_compared_at_once() -> None:
    """One in some thousand does; counting to it kept the operator busy for hours."""
    wanted, applied = ("7214e88301957426", "19e3400712345678")
    assert not is_covered({"annotations": {"hash": wanted}}, {"annotations": {"hash": applied}})


def test_what_others_add_to_merged_lists_does_not_count() -> None:
    """An apply would not remove it, and was sent again once a second (`kubectl set env`)."""
    own = {"name": "broker", "env": [{"name": "A", "value": "1"}]}
    ours = {"containers": [own, {"name": "relay"}]}
    theirs = {"name": "B", "value": "2"}
    live = {"containers": [own | {"env": [theirs, *own["env"]]}, {"name": "x"}, {"name": "relay"}]}
    assert is_covered(ours, live)
    changed = own | {"env": [{"name": "A", "value": "3"}, theirs]}
    assert not is_covered(ours, {"containers": [changed, {"name": "relay"}]})
    assert not is_covered(ours, {"containers": [own]})
    assert not is_covered(ours, {"containers": [{"name": "relay"}, own]}), "order may matter"
    assert is_covered({"ipFamilies": ["IPv6"]}, {"ipFamilies": ["IPv6", "IPv4"]})
    assert not is_covered({"ipFamilies": ["IPv6"]}, {"ipFamilies": ["IPv4", "IPv6"]})
    ports = {"ports": [{"containerPort": 9092, "protocol": "TCP"}]}
    assert is_covered(ports, {"ports": [{"containerPort": 1}, {"containerPort": 9092} | TCP]})


def test_what_others_add_to_lists_that_are_replaced_is_taken_out_again() -> None:
    rule = {"ports": [{"port": 9092} | TCP]}
    for field in ("ingress", "args", "tolerations"):
        assert not is_covered({field: [rule]}, {field: [rule, {}]})
    open_rule = {"ports": [{"port": 22} | TCP, *rule["ports"]]}
    assert not is_covered({"ingress": [rule]}, {"ingress": [open_rule]})
    assert not is_covered({"env": []}, {"env": [{"name": "B"}]})


def test_a_port_that_somebody_adds_to_a_service_is_his() -> None:
    own = {"name": "kafka", "port": 9092, "targetPort": 9092, "protocol": "TCP"}
    other = {"name": "scrape", "port": 8081, "targetPort": 8081, "protocol": "TCP"}
    given = own | {"nodePort": 30123}
    for live in ([other, given], [given, other]):
        assert is_covered({"ports": [own]}, {"ports": live})
    assert not is_covered({"ports": [own]}, {"ports": [other]})
    assert not is_covered({"ports": [own]}, {"ports": [given | {"targetPort": 1}, other]})
    assert not is_covered({"ports": [own]}, {"ports": [given | {"protocol": "UDP"}]})


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


def test_a_paused_pool_stays_as_it_is_and_others_follow() -> None:
    pools = (pool_view(), pool_view("more", idBase=10))
    situation = observed(pools=pools)
    situation = applied(situation, plan_cluster(situation, SETTINGS))
    changed: dict[str, Any] = {
        "replicas": 5,
        "storage": {"size": "2Gi"},
        "config": {"log.retention.hours": 5},
    }
    held = pool_view(paused=True, **changed)
    claims = {"data-demo-main-0": "1Gi"}
    live = {key: each for key, each in situation.live.items() if key != ("ConfigMap", "demo-main")}
    situation = replace(situation, pools=(held, pools[1]), claim_sizes=claims, live=live)
    plan = plan_cluster(situation, SETTINGS)
    assert plan.is_converged
    assert [(each.pool.name, each.replicas) for each in plan.pools] == [("main", 3), ("more", 3)]
    again = replace(situation, pools=(pool_view(**changed), pools[1]))
    assert {("ConfigMap", "demo-main")} < names(plan_cluster(again, SETTINGS))
    follows = replace(situation, pools=(held, pool_view("more", idBase=10, replicas=4)))
    assert names(plan_cluster(follows, SETTINGS)) == {("StatefulSet", "demo-more")}


def test_services_of_a_paused_pool_stay_though_nothing_asks_for_them() -> None:
    listener = {"name": "outside", "type": "NodePort", "port": 9095}
    situation = observed(cluster=cluster_view(listeners=[listener]))
    situation = applied(situation, plan_cluster(situation, SETTINGS))
    assert ("Service", "demo-outside-0") in situation.live
    held = replace(situation, cluster=cluster_view(), pools=(pool_view(paused=True),))
    goes = {child.key for child in plan_cluster(held, SETTINGS).deletes}
    assert goes == {("Service", "demo-outside-bootstrap")}
