"""The most important part of a plan, where only so many moves can be kept. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from fairlead_controller.decisions.balance.facts import (
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Goal,
)
from fairlead_controller.decisions.balance.ledger import Ledger


def cut_plan(
    plan: BalancePlan,
    brokers: Sequence[BalancedBroker],
    partitions: Sequence[BalancedPartition],
    *,
    most: int,
    bytes_most: int | None = None,
    goals: Collection[Goal] = frozenset(Goal),
) -> BalancePlan:
    """Return a plan of at most so many moves and bytes, those for the first of these goals.

    All of it if it fits. Each move stands by itself, so a part of a plan can be carried out like
    the whole. A move that is too large leaves its room to those behind it.
    """
    left = plan.bytes if bytes_most is None else bytes_most
    wanted = [move for move in plan.moves if move.goal in goals]
    if len(plan.moves) == len(wanted) <= most and plan.bytes <= left:
        return plan
    rank = {goal: number for number, goal in enumerate(Goal)}
    after: dict[tuple[str, int], tuple[int, ...]] = {}
    for move in sorted(wanted, key=lambda move: rank[move.goal]):
        if len(after) < most and move.bytes <= left:
            after[move.topic, move.index] = move.after
            left -= move.bytes
    moved = [
        replace(each, replicas=after.get((each.topic, each.index), each.replicas))
        for each in partitions
    ]
    moves = tuple([move for move in plan.moves if (move.topic, move.index) in after])
    return replace(plan, moves=moves, after=Ledger(brokers, moved).standing())
