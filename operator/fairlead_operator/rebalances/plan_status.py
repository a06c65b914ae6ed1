"""A plan as a Rebalance's status has it: made from the controller's state, and compared with it.

Pure. The moves have the fields of `fairlead_controller.decisions.balance.plan_document`, which says
what a plan's id stands for and what makes it stale.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fairlead_controller.decisions.balance.cluster_facts import build_brokers, build_partitions
from fairlead_controller.decisions.balance.facts import BalancePlan, Goal
from fairlead_controller.decisions.balance.plan_cut import cut_plan
from fairlead_controller.decisions.balance.plan_document import (
    build_plan_document,
    changes_since,
    plan_id,
)
from fairlead_controller.decisions.balance.plan_progress import MoveState, state_of_move
from fairlead_controller.decisions.balance.planner import plan_balance
from fairlead_controller.decisions.reassignment.moves import located
from fairlead_controller.decisions.state import ControllerState
from fairlead_operator.conditions import api_time
from fairlead_operator.resources.rebalance import MOVES_MAX

Move = Mapping[str, Any]
JUDGED: Final = (Goal.RACKS, Goal.REPLICAS, Goal.LEADERS)
MOVE_FIELDS: Final = (
    "topic", "topicId", "partition", "leaderEpoch", "before", "after", "goal",
)  # fmt: skip
NOT_MEASURED: Final = (
    "Disks, bytes in and bytes out were not judged, and how much is copied is not known: the "
    "operator does not measure them. `fairlead rebalance` does."
)


def make_plan(state: ControllerState, now: datetime, most: int = MOVES_MAX) -> dict[str, Any]:
    """Return a plan for the cluster as it is; it may have no moves."""
    waiting = waiting_partitions(state)
    brokers, partitions = build_brokers(state, {}), build_partitions(state, waiting, {}, {})
    whole = plan_balance(brokers, partitions)
    plan = cut_plan(whole, brokers, partitions, most)
    document = build_plan_document(state.image.cluster_id, state, plan, None)
    notes = [NOT_MEASURED]
    if fixed := sum(each.is_fixed for each in partitions):
        notes.append(f"{fixed} partitions stay where they are: they move, or miss replicas.")
    if left_out := len(whole.moves) - len(plan.moves):
        notes.append(f"{left_out} partitions more have to move: make another Rebalance afterwards.")
    return {
        "id": document["id"],
        "madeAt": api_time(now),
        "clusterId": document["clusterId"],
        "brokers": document["brokers"],
        "partitions": document["partitionsMoved"],
        "leaders": document["leadersOrdered"],
        "leftOut": left_out,
        "goals": [
            {
                "goal": str(goal),
                "before": round(plan.before.distances[goal]),
                "after": round(plan.after.distances[goal]),
            }
            for goal in JUDGED
        ],
        "shares": _shares(plan),
        "notes": notes,
        "moves": [{name: move[name] for name in MOVE_FIELDS} for move in document["moves"]],
    }


def _shares(plan: BalancePlan) -> list[dict[str, int]]:
    arriving = Counter(each for move in plan.moves for each in move.adding)
    leaving = Counter(each for move in plan.moves for each in move.before if each not in move.after)
    return [
        {
            "broker": broker_id,
            "replicasBefore": plan.before.shares[broker_id].replicas,
            "replicasAfter": plan.after.shares[broker_id].replicas,
            "leadersBefore": plan.before.shares[broker_id].leaders,
            "leadersAfter": plan.after.shares[broker_id].leaders,
            "arriving": arriving[broker_id],
            "leaving": leaving[broker_id],
        }
        for broker_id in sorted(plan.before.shares)
    ]


def waiting_partitions(state: ControllerState) -> set[tuple[str, int]]:
    """Return the partitions that move, or wait for it."""
    keys = {*state.moves.running, *state.moves.queued}
    return {(topic.name, index) for topic, index in located(state.image, keys)}


def find_changes(plan: Mapping[str, Any], state: ControllerState) -> list[str]:
    """Say what is not as a plan has it; nothing if it can be carried out as it is."""
    if plan_id(plan) != plan["id"]:
        return ["it was edited after it was made"]
    return changes_since(plan, state.image.cluster_id, state, waiting_partitions(state))


def sort_moves(plan: Mapping[str, Any], state: ControllerState) -> dict[MoveState, list[Move]]:
    """Return a plan's moves by what became of them."""
    sorted_moves: dict[MoveState, list[Move]] = {name: [] for name in MoveState}
    for move in plan["moves"]:
        target = _target(move, state)
        sorted_moves[state_of_move(move, state.image, target)].append(move)
    return sorted_moves


def is_queued(move: Move, state: ControllerState) -> bool:
    """Tell whether a move waits for its turn, so that nothing has been copied yet."""
    record = state.image.partition(move["topic"], move["partition"])
    return record is not None and bool(record.queued_target) and not record.is_being_reassigned


def needs_election(move: Move, state: ControllerState) -> bool:
    """Tell whether a partition that has moved is led by another than its preferred leader."""
    record = state.image.partition(move["topic"], move["partition"])
    return record is not None and record.leader != record.preferred_leader


def _target(move: Move, state: ControllerState) -> tuple[int, ...] | None:
    record = state.image.partition(move["topic"], move["partition"])
    if record is None:
        return None
    if record.queued_target:
        return record.queued_target
    return record.target_replicas if record.is_being_reassigned else None
