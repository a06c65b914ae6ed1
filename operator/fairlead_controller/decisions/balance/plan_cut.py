"""The most important part of a plan, where only so many moves can be kept. Pure."""

from collections.abc import Sequence
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
    most: int,
) -> BalancePlan:
    """Return a plan of at most so many moves, those for the first goals; all of it if it fits.

    Each move stands by itself, so a part of a plan can be carried out like the whole.
    """
    if len(plan.moves) <= most:
        return plan
    rank = {goal: number for number, goal in enumerate(Goal)}
    ranked = sorted(plan.moves, key=lambda move: rank[move.goal])[:most]
    after = {(move.topic, move.index): move.after for move in ranked}
    moved = [
        replace(each, replicas=after.get((each.topic, each.index), each.replicas))
        for each in partitions
    ]
    moves = tuple([move for move in plan.moves if (move.topic, move.index) in after])
    return replace(plan, moves=moves, after=Ledger(brokers, moved).standing())
