"""Plans for small clusters, compared with every assignment that there is."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import ceil, floor

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_controller.decisions.balance.facts import (
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Goal,
)
from fairlead_controller.decisions.balance.planner import plan_balance

Assignment = tuple[tuple[int, ...], ...]
Cluster = tuple[list[BalancedBroker], list[BalancedPartition]]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    racks = draw(st.lists(st.sampled_from("xyz"), min_size=2, max_size=4))
    cordoned = draw(st.sampled_from([None, None, *range(len(racks))]))
    brokers = [
        BalancedBroker(
            number,
            host=f"host-{number}",
            rack=rack,
            capacity=draw(st.sampled_from([1, 1, 1, 2])),
            free_bytes=draw(st.sampled_from([None, None, None, 30])),
            is_cordoned=number == cordoned,
        )
        for number, rack in enumerate(racks)
    ]
    partitions = []
    for index in range(draw(st.integers(1, 4))):
        factor = draw(st.integers(1, 2))
        replicas = draw(st.permutations(range(len(racks))))[:factor]
        rates = st.integers(0, 9).map(float)
        partitions.append(
            BalancedPartition(
                "t",
                index,
                tuple(replicas),
                replicas[0],
                size=draw(st.sampled_from([0, 1, 2, 5, 5, 5, 20])),
                bytes_in=draw(rates),
                bytes_out=draw(rates),
                is_fixed=draw(st.sampled_from([False, False, False, False, True])),
            )
        )
    return brokers, partitions


def assigned(partitions: Sequence[BalancedPartition], plan: BalancePlan) -> Assignment:
    planned = {move.index: move.after for move in plan.moves}
    return tuple(planned.get(each.index, each.replicas) for each in partitions)


def distances(cluster: Cluster, assignment: Assignment) -> list[float]:
    """How far the goals are missed, written down once more as the documentation has them."""
    brokers, partitions = cluster
    accepting = [each for each in brokers if not each.is_cordoned]
    whole = sum(each.capacity for each in accepting)
    parts = {each.broker_id: each.capacity / whole if each in accepting else 0 for each in brokers}
    racks_there = len({each.rack for each in accepting})
    held: list[Counter[int]] = [Counter() for _ in range(5)]
    misplaced = 0
    for partition, replicas in zip(partitions, assignment, strict=True):
        racks = {brokers[each].rack for each in replicas}
        misplaced += sum(brokers[each].is_cordoned for each in replicas)
        misplaced += max(0, min(len(replicas), racks_there) - len(racks))
        for each in replicas:
            held[0][each] += partition.size
            held[1][each] += 1
        held[2][replicas[0]] += 1
        held[3][replicas[0]] += int(partition.bytes_in)
        held[4][replicas[0]] += int(partition.bytes_out)

    def missed(counts: Counter[int], tolerance: float, *, is_rounded: bool) -> float:
        far = 0.0
        for broker_id, part in parts.items():
            fair = counts.total() * part
            low, high = round((1 - tolerance) * fair, 6), round((1 + tolerance) * fair, 6)
            if is_rounded:
                low, high = floor(low), ceil(high)
            far += max(0.0, low - counts[broker_id], counts[broker_id] - high)
        return round(far, 3)

    return [
        misplaced,
        missed(held[0], 0.1, is_rounded=False),
        missed(held[1], 0.1, is_rounded=True),
        missed(held[2], 0.0, is_rounded=True),
        missed(held[3], 0.1, is_rounded=False),
        missed(held[4], 0.1, is_rounded=False),
    ]


def every_assignment(cluster: Cluster) -> Iterator[Assignment]:
    brokers, partitions = cluster
    choices: list[list[tuple[int, ...]]] = [
        [each.replicas]
        if each.is_fixed
        else list(combinations(range(len(brokers)), len(each.replicas)))
        for each in partitions
    ]
    yield from product(*choices)


def copied(cluster: Cluster, assignment: Assignment) -> int:
    return sum(
        partition.size * len(set(after) - set(partition.replicas))
        for partition, after in zip(cluster[1], assignment, strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_a_plan_is_legal_better_and_always_the_same(cluster: Cluster) -> None:
    brokers, partitions = cluster
    plan = plan_balance(brokers, partitions)
    after = assigned(partitions, plan)
    arriving: Counter[int] = Counter()
    for partition, replicas in zip(partitions, after, strict=True):
        assert len(set(replicas)) == len(partition.replicas)
        assert not partition.is_fixed or replicas == partition.replicas
        for each in set(replicas) - set(partition.replicas):
            assert not brokers[each].is_cordoned
            arriving[each] += partition.size
    for broker in brokers:
        assert broker.free_bytes is None or arriving[broker.broker_id] <= broker.free_bytes
    before = tuple(each.replicas for each in partitions)
    # The first goal that changes gets better: no goal costs one before it.
    assert distances(cluster, after) <= distances(cluster, before)
    assert [round(plan.after.distances[goal], 3) for goal in Goal] == distances(cluster, after)
    assert plan.bytes == copied(cluster, after)
    repairs = sum(move.bytes for move in plan.moves if move.goal is Goal.RACKS)
    assert plan.bytes <= max(repairs, 1.3 * plan.bytes_needed)
    assert plan_balance(brokers[::-1], partitions[::-1]) == plan


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_no_plan_that_meets_the_goals_moves_less_than_the_bound(cluster: Cluster) -> None:
    needed = plan_balance(*cluster).bytes_needed
    for assignment in every_assignment(cluster):
        if not any(distances(cluster, assignment)[:3]):
            assert copied(cluster, assignment) >= needed


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 5), st.integers(1, 3), st.integers(1, 3), st.integers(4, 12))
def test_empty_brokers_are_filled_with_little_more_than_must_move(
    count: int, added: int, factor: int, partitions_each: int
) -> None:
    brokers = [BalancedBroker(number) for number in range(count + added)]
    partitions = [
        BalancedPartition(
            "t", index, tuple((index + step) % count for step in range(factor)), index % count, 100
        )
        for index in range(count * partitions_each * 3)
    ]
    plan = plan_balance(brokers, partitions)
    held = [share.replicas for share in plan.after.shares.values()]
    assert max(held) - min(held) <= 0.2 * sum(held) / len(held) + 1
    # The only replica leads: there is nobody else without a copy.
    assert factor == 1 or plan.after.distances[Goal.LEADERS] == 0
    assert plan.bytes_needed <= plan.bytes <= 1.3 * plan.bytes_needed
