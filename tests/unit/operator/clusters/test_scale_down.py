"""When a broker may leave its pool, and what the controller is told before."""

from dataclasses import replace

import pytest
from operator_views import holdings, pool_view

from fairlead_operator.clusters.scale_down import (
    BrokerHoldings,
    ScaleDownOrder,
    count_remaining,
    decide_order,
    describe_holdings,
    find_departed,
    find_departed_with_pool,
    read_holdings,
)

EMPTY = BrokerHoldings(is_drained=True, leaves="main")
FULL = BrokerHoldings(replicas=9)
THREE = pool_view(replicas=3)


@pytest.mark.parametrize(
    ("last", "may_go"),
    [
        (EMPTY, True),
        (replace(EMPTY, replicas=1), False),
        (replace(EMPTY, is_drained=False), False),
        (replace(EMPTY, removals=1), False),
        (replace(EMPTY, removals=1, is_live=False), True),
        (replace(EMPTY, replicas=1, is_live=False), False),
        (None, True),
    ],
    ids=["empty", "holds", "may be given something", "deletes", "is down", "is down", "unknown"],
)
def test_who_may_go(last: BrokerHoldings | None, may_go: bool) -> None:
    brokers = dict.fromkeys(range(3), FULL) | ({} if last is None else {3: last})
    assert count_remaining(THREE, 4, brokers) == (3 if may_go else 4)


def test_the_highest_goes_first_and_nobody_before_it() -> None:
    brokers = dict.fromkeys(range(3), FULL) | {3: EMPTY, 4: replace(EMPTY, replicas=1)}
    assert count_remaining(THREE, 5, brokers) == 5
    assert count_remaining(THREE, 5, brokers | {3: FULL, 4: EMPTY}) == 4
    assert count_remaining(THREE, 5, brokers | {3: EMPTY, 4: EMPTY}) == 3


def test_all_that_leave_are_ordered_at_once() -> None:
    brokers = dict.fromkeys(range(5), FULL)
    assert decide_order(THREE, 5, brokers) == ScaleDownOrder((3, 4), (), is_news=True)
    drained = brokers | {3: replace(FULL, is_drained=True), 4: replace(FULL, is_drained=True)}
    assert decide_order(THREE, 5, drained) == ScaleDownOrder((3, 4)), "is anything in the way?"
    assert decide_order(THREE, 5, None) is None
    assert decide_order(THREE, 3, dict.fromkeys(range(3), FULL)) is None


def test_who_has_left_stays_drained_as_long_as_it_is_registered() -> None:
    brokers = dict.fromkeys(range(3), FULL) | {3: EMPTY}
    assert decide_order(THREE, 3, brokers) is None
    undrained = brokers | {3: replace(EMPTY, is_drained=False)}
    assert decide_order(THREE, 3, undrained) == ScaleDownOrder((3,), (), is_news=True)


def test_whoever_is_wanted_again_stays_whatever_it_was_given_up_by() -> None:
    five = pool_view(replicas=5)
    brokers = dict.fromkeys(range(3), FULL) | {3: EMPTY, 4: replace(EMPTY, leaves="another")}
    assert decide_order(five, 5, brokers) == ScaleDownOrder((), (3, 4), is_news=True)
    assert decide_order(pool_view(replicas=4), 5, brokers) == ScaleDownOrder(
        (4,), (3,), is_news=True
    )


def test_what_a_person_drains_in_a_pool_that_keeps_its_size_is_no_business_of_the_pool() -> None:
    assert decide_order(THREE, 3, holdings(b0=9, b1=9, b2=9, drained=(2,))) is None


def test_brokers_of_others_are_left_alone() -> None:
    low = pool_view(replicas=1, idBase=0)
    brokers = dict.fromkeys([0, 1, 10, 11], FULL) | {12: replace(EMPTY, leaves="other")}
    assert decide_order(low, 2, brokers) == ScaleDownOrder((1,), (), is_news=True)


def test_the_status_of_the_controller_is_read_also_without_what_it_did_not_say_before() -> None:
    said = {"id": 3, "replicas": 4, "state": "fenced", "isDrained": True, "leavesPool": "main"}
    status = {"brokers": [said | {"unconfirmedRemovals": 2}, {"id": 4, "replicas": 0}]}
    assert read_holdings(status) == {
        3: BrokerHoldings(
            replicas=4,
            removals=2,
            is_live=False,
            is_fenced=True,
            is_drained=True,
            leaves="main",
        ),
        4: BrokerHoldings(is_live=False),
    }
    assert read_holdings(None) is None


def test_what_is_left_to_do_is_said_in_numbers() -> None:
    brokers = {3: replace(FULL, removals=5), 4: replace(EMPTY, removals=1, is_live=False)}
    assert describe_holdings((3, 4, 5), brokers) == (
        "brokers hold replicas: 3 (9); 5 removed replicas are not deleted yet"
    )
    assert describe_holdings((5,), brokers) == "brokers are about to be drained"


GONE = BrokerHoldings(is_live=False, is_fenced=True, is_drained=True, leaves="main")


@pytest.mark.parametrize(
    ("last", "live_replicas", "pods", "is_forgotten"),
    [
        (GONE, 3, 3, True),
        (GONE, 3, 4, False),
        (GONE, 4, 3, False),
        (GONE, None, 3, False),
        (replace(GONE, replicas=1), 3, 3, False),
        (replace(GONE, removals=1), 3, 3, False),
        (replace(GONE, is_drained=False), 3, 3, False),
        (replace(GONE, is_fenced=False), 3, 3, False),
        (replace(GONE, leaves=""), 3, 3, False),
        (replace(GONE, leaves="other"), 3, 3, False),
    ],
    ids=[
        "gone",
        "its pod is there",
        "its pod will be there",
        "nobody knows whether it will",
        "holds",
        "has to delete",
        "may be given something",
        "starts or stops",
        "drained by a person",
        "of another pool",
    ],
)
def test_who_is_unregistered(
    last: BrokerHoldings, live_replicas: int | None, pods: int, is_forgotten: bool
) -> None:
    brokers = dict.fromkeys(range(3), FULL) | {3: last}
    names = [f"demo-main-{ordinal}" for ordinal in range(pods)]
    found = find_departed(THREE, live_replicas, names, brokers)
    assert found == ((3,) if is_forgotten else ())


@pytest.mark.parametrize(
    ("last", "pools", "stateful_sets", "pods", "is_forgotten"),
    [
        (GONE, {"other"}, {"demo-other"}, ["demo-other-0"], True),
        (GONE, set(), set(), [], True),
        (GONE, {"other", "main"}, {"demo-other"}, [], False),
        (GONE, {"other"}, {"demo-other", "demo-main"}, [], False),
        (GONE, {"other"}, {"demo-other"}, ["demo-main-3"], False),
        (replace(GONE, replicas=1), {"other"}, {"demo-other"}, [], False),
        (replace(GONE, removals=1), {"other"}, {"demo-other"}, [], False),
        (replace(GONE, is_fenced=False), {"other"}, {"demo-other"}, [], False),
        (replace(GONE, leaves=""), {"other"}, {"demo-other"}, [], False),
    ],
    ids=[
        "gone",
        "it was the last pool",
        "the pool is there",
        "the StatefulSet is going",
        "its pod is going",
        "holds",
        "has to delete",
        "starts or stops",
        "drained by a person",
    ],
)
def test_who_is_unregistered_after_the_pool(
    last: BrokerHoldings,
    pools: set[str],
    stateful_sets: set[str],
    pods: list[str],
    is_forgotten: bool,
) -> None:
    brokers = {0: replace(FULL), 3: last}
    found = find_departed_with_pool("demo", pools, stateful_sets, pods, brokers)
    assert found == ((3,) if is_forgotten else ())
    assert find_departed_with_pool("demo", pools, stateful_sets, pods, None) == ()


def test_nobody_is_unregistered_that_the_pool_wants_or_while_nobody_can_be_asked() -> None:
    names = [f"demo-main-{ordinal}" for ordinal in range(3)]
    brokers = dict.fromkeys(range(3), FULL) | {3: GONE}
    assert find_departed(pool_view(replicas=4), 3, names, brokers) == ()
    assert find_departed(THREE, 3, names, None) == ()
