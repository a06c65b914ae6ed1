"""A plan in a Rebalance's status: built from the controller's state, and compared with it.

Pure. The moves have the fields of `fairlead_controller.decisions.balance.plan_document`, which says
what a plan's id stands for and when it is stale.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

from fairlead_controller.decisions.balance.cluster_facts import (
    PartitionLoad,
    build_brokers,
    build_loaded_partitions,
)
from fairlead_controller.decisions.balance.facts import (
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Goal,
)
from fairlead_controller.decisions.balance.plan_cut import cut_plan
from fairlead_controller.decisions.balance.plan_document import (
    build_plan_document,
    changes_since,
    plan_id,
)
from fairlead_controller.decisions.balance.plan_progress import MoveState, state_of_move
from fairlead_controller.decisions.balance.planner import plan_balance
from fairlead_controller.decisions.running_reassignments import located
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.resources.resource_shape import camel_case
from fairlead_operator.conditions import api_time, shortened
from fairlead_operator.rebalances.measured_load import MeasuredLoad
from fairlead_operator.resources.rebalance import MOVES_MAX

Move = Mapping[str, Any]
MOVE_FIELDS: Final = (
    "topic", "topicId", "partition", "leaderEpoch", "before", "after", "goal",
)  # fmt: skip
MISSING_SAID: Final = 3
AGE_MAX: Final = timedelta(days=1)
"""A plan with older measurements is not carried out: topics have grown since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """How much of a plan is kept; the rest is left to the next plan."""

    moves: int = MOVES_MAX
    bytes: int | None = None
    staying: Collection[tuple[str, int]] = ()
    """Partitions that this plan does not move."""
    goals: Collection[Goal] = frozenset(Goal)
    """Goals for which partitions are moved."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts from which a plan is made."""

    brokers: Sequence[BalancedBroker]
    partitions: Sequence[BalancedPartition]


@dataclass(frozen=True, slots=True)
class Draft:
    """A whole plan, and the part of it that is kept."""

    facts: Facts
    whole: BalancePlan
    kept: BalancePlan

    @property
    def left_out(self) -> int:
        """Partitions for which there was no room."""
        return len(self.whole.moves) - len(self.kept.moves)


NO_LIMITS: Final = PlanLimits()


def read_facts(state: ControllerState, load: MeasuredLoad, limits: PlanLimits = NO_LIMITS) -> Facts:
    """Return the cluster's facts; sizes and rates count only if every broker reported them."""
    staying = waiting_partitions(state) | set(limits.staying)
    return Facts(
        build_brokers(state, load.disks if load.is_whole else {}),
        build_loaded_partitions(state, staying, judged_loads(load)),
    )


def draft_plan(facts: Facts, limits: PlanLimits = NO_LIMITS) -> Draft:
    """Make a plan, and cut it to its limits."""
    whole = plan_balance(facts.brokers, facts.partitions)
    kept = cut_plan(
        whole,
        facts.brokers,
        facts.partitions,
        most=limits.moves,
        bytes_most=limits.bytes,
        goals=limits.goals,
    )
    return Draft(facts, whole, kept)


def judged_loads(load: MeasuredLoad) -> Mapping[tuple[str, int], PartitionLoad]:
    """Return the loads on which plans may be based."""
    if not load.is_whole:
        return {}
    if load.knows_rates:
        return load.loads
    return {at: PartitionLoad(each.size) for at, each in load.loads.items()}


def judged_goals(load: MeasuredLoad) -> tuple[Goal, ...]:
    """Return the goals of which enough is known."""
    unknown: set[Goal] = set()
    if not load.is_whole:
        unknown.add(Goal.DISKS)
    if not load.knows_rates:
        unknown |= {Goal.BYTES_IN, Goal.BYTES_OUT}
    return tuple(goal for goal in Goal if goal not in unknown)


def make_plan(
    state: ControllerState, load: MeasuredLoad, now: datetime, limits: PlanLimits = NO_LIMITS
) -> dict[str, Any]:
    """Return a plan for the present cluster; it may have no moves."""
    return describe_draft(state, load, draft_plan(read_facts(state, load, limits), limits), now)


def describe_draft(
    state: ControllerState, load: MeasuredLoad, draft: Draft, now: datetime
) -> dict[str, Any]:
    """Return a plan in the form of the status."""
    plan = draft.kept
    rate = load.copy_bytes_per_s if load.is_whole else None
    document = build_plan_document(state.image.cluster_id, state, plan, rate)
    told: dict[str, Any] = {
        "id": document["id"],
        "madeAt": api_time(now),
        "clusterId": document["clusterId"],
        "brokers": document["brokers"],
        "partitions": document["partitionsMoved"],
        "leaders": document["leadersOrdered"],
        "leftOut": draft.left_out,
        "isMeasured": load.is_whole,
        "goals": [
            {
                "goal": str(goal),
                "before": round(plan.before.distances[goal]),
                "after": round(plan.after.distances[goal]),
            }
            for goal in judged_goals(load)
        ],
        "shares": _shares(plan, load),
        "notes": _notes(draft, load),
        "moves": [{name: move[name] for name in MOVE_FIELDS} for move in document["moves"]],
    }
    if load.is_whole:
        told |= {"bytes": document["bytes"], "bytesNeeded": document["bytesNeeded"]}
        for told_move, move in zip(told["moves"], document["moves"], strict=True):
            told_move["bytes"] = move["bytes"]
        if rate is not None:
            told |= {"bytesPerSecond": rate, "durationSeconds": ceil(document["durationS"])}
    return told


def _notes(draft: Draft, load: MeasuredLoad) -> list[str]:
    notes = []
    if not load.is_whole:
        more = len(load.missing) - MISSING_SAID
        notes.append(
            "Disks, bytes in and bytes out were not judged, and how much is copied is not known. "
            + " ".join(load.missing[:MISSING_SAID])
            + (f" And {more} more." if more > 0 else "")
        )
    elif load.rates_known < load.partitions:
        notes.append(
            f"Bytes in and out are known of {load.rates_known} of {load.partitions} partitions, "
            "whose leaders have led for half a minute; "
            + (
                "the others count as the mean of their topics."
                if load.knows_rates
                else "they were not judged."
            )
        )
    if any(None in (each.total_bytes, each.free_bytes) for each in load.disks.values()):
        notes.append("A broker does not tell the size of its disk: shares are equal.")
    if fixed := sum(each.is_fixed for each in draft.facts.partitions):
        notes.append(f"{fixed} partitions stay: they move, miss replicas, or have just been moved.")
    if draft.left_out:
        notes.append(
            f"{draft.left_out} partitions more would have to move; this plan leaves them out."
        )
    return [shortened(each) for each in notes]


def _shares(plan: BalancePlan, load: MeasuredLoad) -> list[dict[str, int]]:
    arriving = Counter(each for move in plan.moves for each in move.adding)
    leaving = Counter(each for move in plan.moves for each in move.before if each not in move.after)
    fields = ["replicas", "leaders"]
    fields += ["bytes"] if load.is_whole else []
    fields += ["bytes_in", "bytes_out"] if load.knows_rates else []
    return [
        {
            "broker": broker_id,
            **{
                camel_case(f"{name}_{when}"): round(getattr(standing.shares[broker_id], name))
                for name in fields
                for when, standing in (("before", plan.before), ("after", plan.after))
            },
            "arriving": arriving[broker_id],
            "leaving": leaving[broker_id],
        }
        for broker_id in sorted(plan.before.shares)
    ]


def waiting_partitions(state: ControllerState) -> set[tuple[str, int]]:
    """Return the partitions that are being reassigned, or wait for it."""
    keys = {*state.moves.running, *state.moves.queued}
    return {(topic.name, index) for topic, index in located(state.image, keys)}


def find_changes(plan: Mapping[str, Any], state: ControllerState, now: datetime) -> list[str]:
    """Return what differs from a plan; empty if it can be carried out as it is."""
    if plan_id(plan) != plan["id"]:
        return ["it was edited after it was made"]
    age = now - datetime.fromisoformat(plan["madeAt"])
    if plan.get("isMeasured") and age > AGE_MAX:
        return [f"it was measured {age // timedelta(hours=1)} hours ago"]
    return changes_since(plan, state.image.cluster_id, state, waiting_partitions(state))


def sort_moves(plan: Mapping[str, Any], state: ControllerState) -> dict[MoveState, list[Move]]:
    """Return a plan's moves by their results."""
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
    """Tell whether a reassigned partition is not led by its preferred leader."""
    record = state.image.partition(move["topic"], move["partition"])
    return record is not None and record.leader != record.preferred_leader


def _target(move: Move, state: ControllerState) -> tuple[int, ...] | None:
    record = state.image.partition(move["topic"], move["partition"])
    if record is None:
        return None
    if record.queued_target:
        return record.queued_target
    return record.target_replicas if record.is_being_reassigned else None
