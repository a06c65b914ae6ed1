"""What a plan does, told by cases; `tests/property/test_balance_plans.py` has the rules."""

import math
import random
import time
from collections import Counter

import pytest

from fairlead_controller.decisions.balance.facts import (
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Goal,
)
from fairlead_controller.decisions.balance.planner import plan_balance

GB = 10**9


def brokers(count: int, racks: int = 1, **settings: object) -> list[BalancedBroker]:
    return [
        BalancedBroker(each, f"host-{each}", f"rack-{each % racks}", **settings)  # type: ignore[arg-type]
        for each in range(count)
    ]


def ring(count: int, on: int, factor: int = 3, size: int = GB) -> list[BalancedPartition]:
    """Partitions around a ring of brokers."""
    return [
        BalancedPartition(
            "t", index, tuple((index + step) % on for step in range(factor)), index % on, size
        )
        for index in range(count)
    ]


def replicas_of(plan: BalancePlan) -> list[int]:
    return [share.replicas for share in plan.after.shares.values()]


def is_better(plan: BalancePlan) -> bool:
    after = [round(plan.after.distances[goal], 3) for goal in Goal]
    return after <= [round(plan.before.distances[goal], 3) for goal in Goal]


def test_two_empty_brokers_are_filled_with_what_must_move() -> None:
    plan = plan_balance(brokers(5), ring(500, on=3))
    # Two brokers lack 270 of 300 replicas, and nothing else has to move.
    assert plan.bytes == plan.bytes_needed == 540 * GB
    assert Counter(replicas_of(plan)) == {320: 3, 270: 2}
    assert [share.leaders for share in plan.after.shares.values()] == [100] * 5
    assert {each for move in plan.moves for each in move.adding} == {3, 4}


def test_an_even_cluster_stays_as_it_is() -> None:
    plan = plan_balance(brokers(4, racks=2), ring(40, on=4, factor=2))
    assert (plan.moves, plan.bytes, plan.bytes_needed) == ((), 0, 0)
    assert plan.duration_s(1.0) == 0


def test_a_cordoned_broker_gives_everything_away() -> None:
    cluster = [*brokers(3), BalancedBroker(3, "host-3", "rack-0", is_cordoned=True)]
    plan = plan_balance(cluster, ring(40, on=4, factor=2))
    assert plan.after.shares[3].replicas == 0
    assert plan.bytes == plan.bytes_needed == 20 * GB
    assert {move.goal for move in plan.moves if move.bytes} == {Goal.RACKS}


def test_replicas_in_one_rack_go_apart_and_stay_apart() -> None:
    cluster = brokers(4, racks=2)
    together = [BalancedPartition("t", index, (0, 2), 0, GB) for index in range(8)]
    plan = plan_balance(cluster, together)
    assert plan.before.distances[Goal.RACKS] == 8
    assert plan.after.distances[Goal.RACKS] == 0
    for move in plan.moves:
        assert {each % 2 for each in move.after} == {0, 1}


def test_disks_become_even_without_a_rack_less() -> None:
    racks = ["x", "x", "y", "z"]
    cluster = [BalancedBroker(each, rack=rack) for each, rack in enumerate(racks)]
    plan = plan_balance(cluster, [BalancedPartition("t", each, (0, 2), 0, GB) for each in range(9)])
    for move in plan.moves:
        assert len({racks[each] for each in move.after}) == 2
    assert plan.after.distances[Goal.RACKS] == 0
    assert plan.after.distances[Goal.DISKS] < plan.before.distances[Goal.DISKS] / 3


def test_machines_count_before_racks() -> None:
    cluster = [
        BalancedBroker(0, "a", "x"),
        BalancedBroker(1, "a", "x"),
        BalancedBroker(2, "b", "x"),
    ]
    (move,) = plan_balance(cluster, [BalancedPartition("t", 0, (0, 1), 0, 1)]).moves
    assert (move.after, move.goal) == ((0, 2), Goal.RACKS)


def test_big_disks_get_more() -> None:
    cluster = [BalancedBroker(0, capacity=3), BalancedBroker(1, capacity=1)]
    plan = plan_balance(cluster, ring(40, on=2, factor=1))
    shares = plan.after.shares
    assert 2.4 < shares[0].bytes / shares[1].bytes < 3.7


def test_a_full_disk_takes_nothing() -> None:
    cluster = [BalancedBroker(0), BalancedBroker(1, free_bytes=5 * GB)]
    plan = plan_balance(cluster, ring(40, on=1, factor=1))
    assert plan.after.shares[1].bytes == 5 * GB


def test_what_is_fixed_is_counted_and_stays() -> None:
    fixed = [BalancedPartition("f", index, (0,), 0, GB, is_fixed=True) for index in range(10)]
    plan = plan_balance(brokers(2), [*fixed, *ring(10, on=1, factor=1)])
    assert {move.topic for move in plan.moves} == {"t"}
    assert plan.after.shares[0].bytes == pytest.approx(10 * GB, rel=0.11)


def test_a_replica_on_a_broker_that_is_gone_is_nobodys() -> None:
    partition = BalancedPartition("t", 0, (0, 7), 0, GB)
    assert plan_balance(brokers(3), [partition]).moves == ()


def test_leaders_become_even_without_a_copy() -> None:
    led_by_0 = [BalancedPartition("t", index, (0, 1 + index % 2), 0, GB) for index in range(9)]
    led_by_0 += [BalancedPartition("u", index, (1, 2), 1, GB) for index in range(4)]
    plan = plan_balance(brokers(3), led_by_0)
    leaders = [share.leaders for share in plan.after.shares.values()]
    assert (max(leaders) - min(leaders), plan.bytes) == (1, 0)


def test_a_leader_is_passed_on_over_another_broker() -> None:
    # 0 leads three, 2 none, and they share no partition.
    chain = [
        BalancedPartition("t", 0, (0, 1), 0),
        BalancedPartition("t", 1, (0, 1), 0),
        BalancedPartition("t", 2, (1, 2), 1),
    ]
    plan = plan_balance(brokers(3), chain)
    assert [share.leaders for share in plan.after.shares.values()] == [1, 1, 1]


def test_rates_become_even_by_exchange_of_leaders() -> None:
    rates = (100.0, 90.0, 10.0, 0.0)
    hot = [
        BalancedPartition("t", index, (index // 2, 1 - index // 2), 0, 0, rate, rate)
        for index, rate in enumerate(rates)
    ]
    plan = plan_balance(brokers(2), hot)
    shares = plan.after.shares
    assert [share.leaders for share in shares.values()] == [2, 2]
    assert sorted(share.bytes_in for share in shares.values()) == [100.0, 100.0]
    assert plan.after.distances[Goal.BYTES_IN] == 0


def test_how_long_it_takes_goes_by_the_broker_that_sends_most() -> None:
    plan = plan_balance(brokers(2), ring(10, on=1, factor=1))
    assert plan.duration_s(1e9) == plan.bytes / 1e9 > 0


def uneven(count: int, brokers_used: int, seed: int) -> list[BalancedPartition]:
    """Sizes, rates and places at random, three racks; low broker ids have most."""
    random_source = random.Random(seed)
    partitions = []
    for index in range(count):
        replicas: list[int] = []
        while len(replicas) < 3:
            broker = min(int(abs(random_source.gauss(0, brokers_used / 2))), brokers_used - 1)
            if broker % 3 not in [each % 3 for each in replicas]:
                replicas.append(broker)
        rate = random_source.random() * 1e6
        size = int(random_source.lognormvariate(20, 1))
        partitions.append(
            BalancedPartition("t", index, tuple(replicas), replicas[0], size, rate, rate / 2)
        )
    return partitions


@pytest.mark.parametrize(
    ("count", "added", "partitions"), [(3, 3, 500), (9, 0, 600), (9, 3, 600), (30, 1, 2000)]
)
def test_little_more_moves_than_must(count: int, added: int, partitions: int) -> None:
    for seed in range(3):
        plan = plan_balance(brokers(count + added, racks=3), uneven(partitions, count, seed))
        assert is_better(plan)
        assert 0 < plan.bytes <= 1.3 * plan.bytes_needed
        goals = (Goal.DISKS, Goal.REPLICAS, Goal.LEADERS)
        assert [plan.after.distances[goal] for goal in goals] == [0, 0, 0]


def test_a_hundred_brokers_with_twenty_thousand_partitions_take_two_seconds() -> None:
    """Whoever shares a processor's caches makes a plan longer: the best of some counts."""
    cluster, partitions = brokers(100, racks=3), uneven(20_000, 99, seed=1)
    took_s = math.inf
    for _ in range(3):
        began = time.process_time()
        plan = plan_balance(cluster, partitions)
        took_s = min(took_s, time.process_time() - began)
        if took_s <= 2.0:
            break
    assert is_better(plan)
    assert plan.bytes <= 1.3 * plan.bytes_needed
    assert plan.after.distances[Goal.DISKS] == plan.after.distances[Goal.LEADERS] == 0
    assert took_s <= 2.0
