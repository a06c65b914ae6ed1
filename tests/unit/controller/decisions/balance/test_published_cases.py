"""The clusters that Cruise Control tests its own goals with.

Places and loads are those of `DeterministicCluster` of linkedin/cruise-control; what they call disk
is a replica's size here, in MB, and a dead broker is one that is being drained. What they leave to
a limit of the broker's capacity is left out: our goals are shares.
"""

import pytest

from fairlead_controller.decisions.balance.facts import (
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Goal,
)
from fairlead_controller.decisions.balance.planner import plan_balance

MB = 10**6
THREE = [
    BalancedBroker(0, "host-0", "rack-0"),
    BalancedBroker(1, "host-1", "rack-0"),
    BalancedBroker(2, "host-2", "rack-1"),
]
"""Two racks, of which the second has a single broker."""


def partition(
    name: str, replicas: tuple[int, ...], size: float, bytes_in: float = 0, bytes_out: float = 0
) -> BalancedPartition:
    """Return a partition by a name like `T1-0`, led by its first replica."""
    topic, _, index = name.partition("-")
    return BalancedPartition(
        topic, int(index), replicas, replicas[0], int(size * MB), bytes_in, bytes_out
    )


def is_met(plan: BalancePlan, *goals: Goal) -> bool:
    return not any(round(plan.after.distances[goal], 3) for goal in goals)


def replicas_of(plan: BalancePlan) -> list[int]:
    return [share.replicas for share in plan.after.shares.values()]


def leaders_of(plan: BalancePlan) -> list[int]:
    return [share.leaders for share in plan.after.shares.values()]


UNBALANCED = [partition("T1-0", (0,), 150), partition("T2-0", (0,), 150)]
UNBALANCED_2 = [
    *UNBALANCED,
    partition("T1-1", (1,), 150),
    *[partition(name, (0,), 150) for name in ("T2-1", "T1-2", "T2-2")],
]


def test_unbalanced() -> None:
    """Two partitions of one broker: one of them goes, and the third broker stays without."""
    plan = plan_balance(THREE, UNBALANCED)
    assert sorted(replicas_of(plan)) == sorted(leaders_of(plan)) == [0, 1, 1]
    assert plan.bytes == 150 * MB


def test_unbalanced_2() -> None:
    plan = plan_balance(THREE, UNBALANCED_2)
    assert replicas_of(plan) == leaders_of(plan) == [2, 2, 2]
    assert plan.bytes == 3 * 150 * MB
    assert plan.bytes <= 1.3 * plan.bytes_needed


def test_unbalanced_3() -> None:
    """Both in one rack, and led by their second replica."""
    both = [BalancedPartition(topic, 0, (1, 0), 0, 150 * MB) for topic in ("T1", "T2")]
    plan = plan_balance(THREE, both)
    assert is_met(plan, Goal.RACKS, Goal.LEADERS)
    assert plan.bytes == plan.bytes_needed == 2 * 150 * MB


def test_unbalanced_4() -> None:
    """Sizes that differ by no more than a tenth of a broker's share: nothing is worth a copy."""
    pair = [BalancedBroker(0, rack="rack-0"), BalancedBroker(1, rack="rack-1")]
    eight = [partition(f"T1-{i}", (int(i > 3),), 60 + 6 * (i / 2 - 1.5)) for i in range(8)]
    assert plan_balance(pair, eight).moves == ()


def test_rack_aware_satisfiable() -> None:
    (move,) = plan_balance(THREE, [partition("T1-0", (0, 1), 75, 100, 130)]).moves
    assert (move.after, move.bytes, move.goal) == ((0, 2), 75 * MB, Goal.RACKS)


def test_rack_aware_unsatisfiable() -> None:
    """Three replicas and two racks: they are as far apart as they can be."""
    plan = plan_balance(THREE, [partition("T1-0", (0, 1, 2), 75, 100, 130)])
    assert plan.moves == ()
    assert is_met(plan, Goal.RACKS)


SMALL = [
    partition("T1-0", (0, 2), 75, 100, 130),
    partition("T1-1", (1, 0), 55, 90, 110),
    partition("T2-0", (1, 2), 5, 5, 6),
    partition("T2-1", (0, 2), 55, 25, 45),
    partition("T2-2", (0, 1), 95, 45, 120),
]
MEDIUM = [
    partition("A-0", (1, 0), 10, 4, 10),
    partition("A-1", (0, 2), 8, 3, 10),
    partition("A-2", (0, 2), 6, 2, 10),
    partition("B-0", (1, 2), 7, 4, 10),
    partition("C-0", (2, 1), 4, 8, 10),
    partition("D-0", (1, 2), 6, 5, 10),
]


@pytest.mark.parametrize(
    ("partitions", "together"), [(SMALL, 55 + 95), (MEDIUM, 10)], ids=["small", "medium"]
)
def test_racks_come_before_even_disks(partitions: list[BalancedPartition], together: int) -> None:
    """Each partition has to be on the only broker of the second rack, which gets more than others.

    What moves is what was together in a rack, and leaders become even all the same.
    """
    plan = plan_balance(THREE, partitions)
    assert is_met(plan, Goal.RACKS, Goal.LEADERS)
    assert plan.bytes == plan.bytes_needed == together * MB
    assert plan.after.shares[2].replicas == len(partitions)
    assert plan.after.distances[Goal.BYTES_OUT] < plan.before.distances[Goal.BYTES_OUT] / 10


def test_a_dead_broker() -> None:
    """Five brokers, of which the second has most and the first is dead."""
    five = [BalancedBroker(each, rack=f"rack-{each}", is_cordoned=each == 0) for each in range(5)]
    eight = [
        partition(f"{topic}-{index}", replicas, 100, bytes_in, 2 * bytes_in)
        for topic, last in (("T1", (2, 0)), ("T2", (3, 0)))
        for index, (replicas, bytes_in) in enumerate(
            [((1, 2), 100), ((1, 3), 90), ((1, 4), 75), (last, 60)]
        )
    ]
    plan = plan_balance(five, eight)
    assert replicas_of(plan) == [0, 4, 4, 4, 4]
    assert leaders_of(plan) == [0, 2, 2, 2, 2]
    assert is_met(plan, *Goal)
    assert plan.bytes <= 1.3 * plan.bytes_needed
