"""Which volumes brokers get, and what becomes of a StatefulSet whose claims cannot be changed."""

from dataclasses import replace
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, holdings, pool_view

from fairlead_operator.clusters.plan import ClusterObserved, PoolPlan, plan_cluster
from fairlead_operator.clusters.pool_volumes import VolumeDecision, decide_volumes
from fairlead_operator.clusters.volume_use import ClaimUse
from fairlead_operator.specs.claim_template import ClaimTemplate, read_claim_templates
from fairlead_operator.specs.names import claim_name
from fairlead_operator.specs.views import PoolView

STATEFUL_SET = ("StatefulSet", "demo-main")
NOBODY_SAYS = ClaimUse()


def several(*sizes: str, **storage: Any) -> PoolView:
    """A pool of two brokers with volumes of these sizes, whose ids count from 0."""
    volumes = [{"id": number, "size": size} for number, size in enumerate(sizes)]
    return pool_view(replicas=2, storage={"volumes": volumes, **storage})


def made(*sizes: str) -> tuple[ClaimTemplate, ...]:
    return tuple(ClaimTemplate(volume=number, size=size) for number, size in enumerate(sizes))


def claims(*sizes: str, brokers: int = 2) -> dict[str, str]:
    return {
        claim_name("demo", "main", ordinal, volume): size
        for volume, size in enumerate(sizes)
        for ordinal in range(brokers)
    }


def decide(
    pool: PoolView,
    templates: tuple[ClaimTemplate, ...] | None,
    there: dict[str, str],
    bound: tuple[str, ...] | None = None,
    *,
    use: ClaimUse = NOBODY_SAYS,
) -> VolumeDecision:
    return decide_volumes(pool, 2, templates, there, there if bound is None else bound, use=use)


def test_claims_grow_before_the_stateful_set_is_made_anew() -> None:
    pool = pool_view(storage={"size": "2Gi"})
    assert decide_volumes(pool, 0, None, {}, (), use=NOBODY_SAYS).templates == made("2Gi")
    first = decide(pool, made("1Gi"), {"data-demo-main-0": "1Gi", "data-demo-main-1": "2048Mi"})
    assert (first.claims, first.recreates) == ({"data-demo-main-0": "2Gi"}, False)
    assert first.held[0].size == "2048Mi", "what one volume has got cannot be taken back"
    second = decide(pool, made("1Gi"), {"data-demo-main-0": "2Gi"})
    assert (second.claims, second.recreates) == ({}, True)
    done = decide(pool, made("2Gi"), {"data-demo-main-0": "2Gi"})
    assert (done.is_settled, done.templates) == (True, made("2Gi"))


def test_one_of_several_volumes_grows_by_itself() -> None:
    pool = several("1Gi", "5Gi")
    first = decide(pool, made("1Gi", "2Gi"), claims("1Gi", "2Gi"))
    assert first.claims == {"data-1-demo-main-0": "5Gi", "data-1-demo-main-1": "5Gi"}
    assert (first.recreates, first.templates) == (False, made("1Gi", "2Gi"))
    second = decide(pool, made("1Gi", "2Gi"), claims("1Gi", "5Gi"))
    assert (second.claims, second.recreates, second.added) == ({}, True, ())
    assert decide(pool, made("1Gi", "5Gi"), claims("1Gi", "5Gi")).is_settled


def test_one_volume_by_another_name_is_the_same_volume() -> None:
    assert decide(several("1Gi"), made("1Gi"), claims("1Gi")).is_settled
    more = decide(several("1Gi", "3Gi"), made("1Gi"), claims("1Gi"))
    assert (more.recreates, more.added) == (True, (1,))
    assert [(each.volume, each.claims, each.bound) for each in more.held] == [(0, 2, 2)]


def test_an_added_volume_waits_for_claims_that_have_to_grow() -> None:
    pool = several("2Gi", "3Gi")
    waits = decide(pool, made("1Gi"), claims("1Gi"))
    assert (len(waits.claims), waits.recreates, waits.templates) == (2, False, made("1Gi"))
    assert decide(pool, made("1Gi"), claims("2Gi")).recreates


def test_a_volume_that_no_broker_has_got_yet_may_be_taken_back() -> None:
    there, bound = claims("1Gi", "2Gi"), tuple(claims("1Gi"))
    first = decide(several("1Gi"), made("1Gi", "2Gi"), there, bound)
    assert (first.recreates, first.dropped, first.blocked) == (True, (1,), "")
    assert first.leftovers == (), "the StatefulSet would make its claims again"
    then = decide(several("1Gi"), made("1Gi"), there, bound)
    assert (then.recreates, then.is_settled) == (False, False)
    assert then.leftovers == ("data-1-demo-main-0", "data-1-demo-main-1")
    assert decide(several("1Gi"), made("1Gi"), claims("1Gi"), bound).is_settled


@pytest.mark.parametrize("has_stateful_set", [True, False])
def test_a_volume_that_a_broker_has_stays_though_the_pool_does_not_name_it(
    has_stateful_set: bool,
) -> None:
    there, bound = claims("1Gi", "2Gi"), (*claims("1Gi"), "data-1-demo-main-1")
    templates = made("1Gi", "2Gi") if has_stateful_set else None
    decision = decide(several("1Gi"), templates, there, bound)
    assert decision.templates == made("1Gi", "2Gi")
    assert (decision.recreates, decision.leftovers) == (False, ())
    assert "volume 1 is not named any more" in decision.blocked
    assert "data-1-demo-main-1" in decision.blocked


def emptied(*brokers: int, in_use: tuple[int, ...] = ()) -> ClaimUse:
    """Brokers that can do without volume 1, and some that have said that they cannot."""
    return ClaimUse(
        unused=frozenset(f"data-1-demo-main-{broker}" for broker in brokers),
        in_use=frozenset(f"data-1-demo-main-{broker}" for broker in in_use),
    )


@pytest.mark.parametrize("has_stateful_set", [True, False])
def test_a_volume_goes_once_every_broker_has_emptied_it_and_its_claims_stay(
    has_stateful_set: bool,
) -> None:
    there, two = claims("1Gi", "2Gi"), made("1Gi", "2Gi")
    templates = two if has_stateful_set else None
    for use in (NOBODY_SAYS, emptied(0), emptied(0, in_use=(1,))):
        waits = decide(several("1Gi"), templates, there, use=use)
        assert (waits.templates, waits.recreates) == (two, False)
    assert "data-1-demo-main-1" in waits.blocked
    assert "data-1-demo-main-0" not in waits.blocked
    assert "--drain /var/lib/fairlead-1/log --wait" in waits.blocked
    goes = decide(several("1Gi"), templates, there, use=emptied(0, 1))
    assert (goes.blocked, goes.leftovers) == ("", ())
    if has_stateful_set:
        assert (goes.recreates, goes.dropped) == (True, (1,))
    else:
        assert goes.templates == made("1Gi"), "it was made anew, and its pods are there still"


def test_a_volume_on_its_way_out_comes_back_for_a_broker_that_uses_it_again() -> None:
    there = claims("1Gi", "2Gi")
    on_its_way = decide(several("1Gi"), made("1Gi"), there, use=emptied(0))
    assert on_its_way.is_settled, "broker 1 restarts, and says nothing"
    back = decide(several("1Gi"), made("1Gi"), there, use=emptied(0, in_use=(1,)))
    assert (back.recreates, back.added) == (True, (1,))
    assert "data-1-demo-main-1" in back.blocked


def test_a_volume_that_is_wanted_stays_though_it_is_empty() -> None:
    there = claims("1Gi", "2Gi")
    assert decide(several("1Gi", "2Gi"), made("1Gi", "2Gi"), there, use=emptied(0, 1)).is_settled


def test_claims_of_an_earlier_pool_of_the_name_are_neither_used_nor_deleted() -> None:
    decision = decide(several("1Gi"), made("1Gi"), claims("1Gi", "2Gi"))
    assert decision.is_settled
    assert not decision.blocked


def observed(pool: PoolView, **changes: Any) -> ClusterObserved:
    nothing = ClusterObserved(
        cluster=cluster_view(), pools=(pool,), live={}, claim_sizes={}, brokers={}
    )
    return replace(nothing, **changes)


def applied(situation: ClusterObserved) -> ClusterObserved:
    plan = plan_cluster(situation, SETTINGS)
    return replace(
        situation, live={**situation.live, **{each.key: each.manifest for each in plan.applies}}
    )


def only(situation: ClusterObserved) -> PoolPlan:
    (plan,) = plan_cluster(situation, SETTINGS).pools
    return plan


def stateful_set_of(plan: PoolPlan) -> dict[str, Any] | None:
    return next((each.manifest for each in plan.children if each.key == STATEFUL_SET), None)


def test_a_third_volume_keeps_every_broker_that_holds_replicas() -> None:
    """Its StatefulSet is away for a moment, while the pool shall have fewer brokers, too."""
    brokers = holdings(b0=9, b1=9)
    before = applied(observed(several("1Gi", "1Gi"), brokers=brokers))
    before = replace(
        before,
        claim_sizes=claims("1Gi", "1Gi"),
        bound_claims=tuple(claims("1Gi", "1Gi")),
        pods=("demo-main-0", "demo-main-1"),
    )
    assert plan_cluster(before, SETTINGS).is_converged
    volumes = [{"id": number, "size": "1Gi"} for number in range(3)]
    wanted = pool_view(replicas=1, storage={"volumes": volumes})
    asked = replace(before, pools=(wanted,))
    first = only(asked)
    assert (first.volumes.recreates, first.volumes.added) == (True, (2,))
    assert stateful_set_of(first) is None
    away = {key: each for key, each in asked.live.items() if key != STATEFUL_SET}
    again = stateful_set_of(only(replace(asked, live=away)))
    assert again is not None
    assert again["spec"]["replicas"] == 2
    assert read_claim_templates(again) == made("1Gi", "1Gi", "1Gi")


def test_neither_a_paused_nor_a_sleeping_pool_gets_a_volume() -> None:
    before = applied(observed(several("1Gi")))
    before = replace(before, claim_sizes=claims("1Gi"), pods=("demo-main-0", "demo-main-1"))
    volumes = [{"id": 0, "size": "1Gi"}, {"id": 7, "size": "1Gi"}]
    wanted: dict[str, Any] = {"replicas": 2, "storage": {"volumes": volumes}}
    assert only(replace(before, pools=(pool_view(**wanted),))).volumes.recreates
    held = replace(before, pools=(pool_view(paused=True, **wanted),))
    assert not only(held).volumes.recreates
    assert plan_cluster(held, SETTINGS).is_converged
    night = only(replace(before, pools=(pool_view(**wanted),), sleeps=True))
    assert not night.volumes.recreates
    manifest = stateful_set_of(night)
    assert manifest is not None
    assert read_claim_templates(manifest) == made("1Gi"), "what a StatefulSet has it keeps"
