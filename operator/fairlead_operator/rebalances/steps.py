"""The next step of a Rebalance: a pure function of its spec, its status, and the cluster.

| phase | waits for | then |
|---|---|---|
| Watching | (mode Auto) the same, and a check that is due | MakePlan, if it is worth a round |
| Pending | no other rebalance, a healthy cluster, the controller | MakePlan |
| ProposalReady | the same, and spec.approve with the plan's id | Enter Moving, or Replan |
| Moving | the controller's reassignments | HandOver; End |
| Paused | paused off | CallBack of queued moves; Enter Moving |
| Cancelling | | CallBack everything; End |
| Complete, Cancelled, Failed | | DropFinalizer |

Each step is one call or one write, and may be repeated. The operator remembers nothing between two
steps: the controller's queue has the moves, and the status says whether the controller has them
all. In the mode Auto a plan needs no approval, any disturbance of the cluster pauses a round, and
its end leads back to Watching. The finalizer is set while anything may move, so that a deletion
cancels the moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from fairlead_controller.decisions.balance.plan_progress import MoveState
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.views.status import broker_state
from fairlead_operator.conditions import find_condition
from fairlead_operator.rebalances.plan_status import (
    Move,
    find_changes,
    is_queued,
    needs_election,
    sort_moves,
)
from fairlead_operator.resources.rebalance import RebalanceSpec

FINAL: Final = frozenset({"Complete", "Cancelled", "Failed"})
ACTIVE: Final = frozenset({"Moving", "Paused", "Cancelling"})
STALE: Final = "PlanStale"
CHANGES_SAID: Final = 5
DISTURBING: Final = frozenset(
    {
        "AnotherRebalance",
        "ClusterChanging",
        "ClusterHibernated",
        "ClusterPaused",
        "ClusterUnhealthy",
        "ControllerUnavailable",
        "DrainUnderWay",
        "DrillRunning",
        "PartitionsMoving",
        "UnderReplicated",
    }
)
"""Reasons after which the mode Auto begins nothing for a while."""
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceView:
    """One Rebalance."""

    spec: RebalanceSpec
    status: Mapping[str, Any] = field(default_factory=dict)
    is_deleting: bool = False
    has_finalizer: bool = False
    known_brokers: frozenset[int] | None = None
    """Brokers at the last read of all partitions, while the next read is not due."""

    @property
    def phase(self) -> str:
        """The Rebalance's phase."""
        return str(self.status.get("phase") or "Pending")

    @property
    def is_automatic(self) -> bool:
        """Whether it is of the mode Auto."""
        return self.spec.is_automatic

    @property
    def is_watching(self) -> bool:
        """Whether it is of the mode Auto, and between two rounds."""
        return self.is_automatic and self.phase in {"Pending", "Watching"}

    @property
    def reason(self) -> str:
        """Why there is no progress, by its status."""
        condition = find_condition(self.status.get("conditions") or (), "Complete") or {}
        return str(condition.get("reason") or "")

    @property
    def plan(self) -> Mapping[str, Any]:
        """The proposed or running plan; there is one from ProposalReady on."""
        plan: Mapping[str, Any] = self.status["plan"]
        return plan

    @property
    def needs_sight(self) -> bool:
        """Whether the next step depends on the cluster."""
        if self.phase in FINAL or (self.is_deleting and self.phase not in ACTIVE):
            return False
        if self.phase != "ProposalReady" or self.is_automatic:
            return True
        return not self.spec.cancel and self.spec.approve == self.plan["id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSight:
    """The LogCluster, and what its controller reports."""

    presence: Literal["Absent", "Paused", "Hibernated", "Changing", "Present"] = "Present"
    """Paused: its spec says so. Changing: a rolling restart or another change is under way."""
    state: ControllerState | None = None
    """None if the controller does not answer, or was not asked."""
    other: str = ""
    """Another Rebalance of the cluster that is under way."""
    automatic: str = ""
    """An older Rebalance of the mode Auto for the same cluster, if this is one, too."""
    drill: str = ""
    """A drill of the cluster that is under way."""
    is_whole: bool = False
    """Whether `state` has all partitions."""
    now: datetime = LONG_AGO
    """When this was observed."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Do nothing now."""


@dataclass(frozen=True, slots=True)
class LookLater:
    """Do nothing until the next check."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Report why nothing else is done, and the progress."""

    reason: str
    message: str
    progress: Mapping[str, int] | None = None
    is_disturbed: bool = False
    """Whether the mode Auto must begin nothing for a while from now on."""


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Make a plan, and propose it."""


@dataclass(frozen=True, slots=True)
class Replan:
    """Drop a plan that no longer fits; the next step makes another plan."""

    message: str


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Make the deletion of the resource wait for the moves."""


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    """Let the resource be deleted."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Enter a phase that is not the last; the remaining moves are handed over again."""

    phase: Literal["Moving", "Paused", "Cancelling"]
    message: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hand moves over to the controller, which begins few at a time."""

    moves: Sequence[Move]


@dataclass(frozen=True, slots=True)
class CallBack:
    """Cancel moves."""

    moves: Sequence[Move]


@dataclass(frozen=True, slots=True)
class End:
    """End the Rebalance."""

    phase: Literal["Complete", "Cancelled", "Failed"]
    reason: str
    message: str
    progress: Mapping[str, int] | None = None
    elections: Sequence[Move] = ()
    """Moves whose planned preferred leaders do not lead yet."""


@dataclass(frozen=True, slots=True)
class EndRound:
    """Return to Watching, in the mode Auto."""

    outcome: Literal["Complete", "Failed"]
    message: str
    progress: Mapping[str, int]
    elections: Sequence[Move] = ()


Step: TypeAlias = (
    Idle
    | LookLater
    | Tell
    | MakePlan
    | Replan
    | AddFinalizer
    | DropFinalizer
    | Enter
    | HandOver
    | CallBack
    | End
    | EndRound
)


def decide_rebalance_step(it: RebalanceView, sight: ClusterSight) -> Step:
    """Return the next step."""
    if it.phase in FINAL or (it.is_deleting and it.phase not in ACTIVE):
        return DropFinalizer() if it.has_finalizer else Idle()
    if it.phase in ACTIVE:
        return _or_end_of_round(it, _decide_active(it, sight))
    if it.spec.cancel:
        return End("Cancelled", "Cancelled", "nothing moves")
    if it.is_watching:
        return _decide_watching(it, sight)
    if it.phase == "Pending":
        return find_obstacle(it, sight) or MakePlan()
    return _decide_proposal(it, sight)


def find_obstacle(it: RebalanceView, sight: ClusterSight) -> Tell | None:
    """Return why no plan is made or begun now."""
    name = it.spec.cluster_name
    if sight.presence == "Absent":
        return Tell("ClusterNotFound", f"there is no LogCluster {name} here")
    if sight.presence == "Paused":
        return Tell("ClusterPaused", f"LogCluster {name} is paused")
    if sight.presence == "Hibernated":
        return Tell("ClusterHibernated", f"LogCluster {name} sleeps, or is about to")
    if sight.other:
        message = f"rebalance {sight.other} of this cluster is under way: this one waits for it"
        return Tell("AnotherRebalance", message)
    if sight.drill:
        return Tell("DrillRunning", f"drill {sight.drill} of this cluster is under way")
    if sight.presence == "Changing":
        message = f"a rolling restart or another change of LogCluster {name} goes on"
        return Tell("ClusterChanging", message)
    if sight.state is None:
        return Tell("ControllerUnavailable", "the cluster's controller does not answer now")
    for broker_id, broker in sorted(sight.state.image.brokers.items()):
        is_confirmed = broker_id not in sight.state.unconfirmed
        state = broker_state(broker, is_confirmed=is_confirmed)
        if state != "live":
            return Tell(
                "ClusterUnhealthy",
                f"broker {broker_id} is {state}: wait until it is back, or unregister it if it is "
                "gone for good",
            )
    return None


def find_disturbance(it: RebalanceView, sight: ClusterSight) -> Tell | None:
    """Return why the mode Auto neither begins a round nor continues one."""
    if sight.automatic:
        message = f"rebalance {sight.automatic} of the mode Auto is older, and watches this cluster"
        return Tell("AnotherAutomatic", message)
    obstacle = find_obstacle(it, sight)
    if obstacle is not None or sight.state is None:
        return obstacle
    state = sight.state
    lacking = ""
    for topic in state.image.topics():
        for index, partition in enumerate(topic.partitions):
            if state.cordoned and (drained := state.cordoned & set(partition.replicas)):
                return Tell("DrainUnderWay", f"broker {min(drained)} is being drained")
            if partition.is_under_replicated and not lacking:
                lacking = f"{topic.name}-{index}"
    if it.phase not in ACTIVE and state.moves:
        return Tell("PartitionsMoving", "somebody else moves partitions of this cluster")
    return Tell("UnderReplicated", f"{lacking} misses replicas in sync") if lacking else None


def _decide_watching(it: RebalanceView, sight: ClusterSight) -> Step:
    disturbance = find_disturbance(it, sight)
    if disturbance is not None:
        is_new = disturbance.reason in DISTURBING and it.reason not in DISTURBING
        return replace(disturbance, is_disturbed=is_new)
    if it.has_finalizer:
        return DropFinalizer()
    if not sight.is_whole:
        # What prevented progress may still be there: only a read of all partitions shows that.
        return LookLater()
    if it.reason in DISTURBING:
        return Tell("Quiet", "nothing is in the way any more", is_disturbed=True)
    if it.spec.paused:
        return Tell("Paused", "spec.paused is true: no round begins")
    return MakePlan()


def _or_end_of_round(it: RebalanceView, step: Step) -> Step:
    """Return the end of the round in place of the end of its plan, in the mode Auto."""
    if not it.is_automatic or not isinstance(step, End) or step.progress is None:
        return step
    if step.phase == "Cancelled":
        return step
    return EndRound(step.phase, step.message, step.progress, step.elections)


def _decide_round_begin(it: RebalanceView, sight: ClusterSight) -> Step:
    """Carry out a plan of the mode Auto, unless something prevents it now."""
    plan_id = it.plan["id"]
    disturbance = find_disturbance(it, sight)
    if disturbance is not None or sight.state is None:
        why = "the cluster is not seen" if disturbance is None else disturbance.message
        return Replan(f"plan {plan_id} is given up: {why}")
    changes = find_changes(it.plan, sight.state, sight.now)
    if changes:
        return Replan(_stale(plan_id, changes))
    if it.spec.paused:
        return Replan(f"plan {plan_id} is given up: spec.paused is true")
    if not it.has_finalizer:
        return AddFinalizer()
    why = (it.status.get("auto") or {}).get("why", "")
    return Enter("Moving", f"plan {plan_id} is within the limits: {why}")


def _decide_proposal(it: RebalanceView, sight: ClusterSight) -> Step:
    if it.is_automatic:
        return _decide_round_begin(it, sight)
    plan_id, approved = it.plan["id"], it.spec.approve
    if approved is None:
        return Tell("AwaitingApproval", f"set spec.approve to {plan_id} to carry this plan out")
    if approved != plan_id:
        before = find_condition(it.status.get("conditions") or (), "Complete") or {}
        is_said = before.get("reason") == STALE and f"plan {approved} " in before["message"]
        message = f"spec.approve names plan {approved}, and the plan is {plan_id} now: look at it"
        return Idle() if is_said else Tell("OtherPlan", message)
    obstacle = find_obstacle(it, sight)
    if obstacle is not None or sight.state is None:
        return obstacle or Idle()
    changes = find_changes(it.plan, sight.state, sight.now)
    if changes:
        return Replan(_stale(plan_id, changes))
    if it.spec.paused:
        return Tell("Paused", "spec.paused is true: the plan is carried out once it is false")
    if not it.has_finalizer:
        return AddFinalizer()
    return Enter("Moving", f"plan {plan_id} is approved")


def _decide_active(it: RebalanceView, sight: ClusterSight) -> Step:
    if sight.presence == "Absent":
        message = f"LogCluster {it.spec.cluster_name} is gone"
        return DropFinalizer() if it.is_deleting else End("Failed", "ClusterNotFound", message)
    if sight.state is None:
        return Tell("ControllerUnavailable", "the cluster's controller does not answer now")
    moves = sort_moves(it.plan, sight.state)
    if it.is_deleting or it.phase == "Cancelling":
        return _decide_cancelling(it, moves)
    if it.spec.cancel:
        return Enter("Cancelling", "all moves that copy or wait are being cancelled")
    disturbance = find_disturbance(it, sight) if it.is_automatic else None
    if it.phase == "Paused":
        return _decide_paused(it, moves, sight.state, disturbance)
    if it.spec.paused or disturbance is not None:
        why = "" if disturbance is None else f"{disturbance.message}: "
        return Enter("Paused", f"{why}moves that copy go on, and no others begin")
    if not it.status.get("isHandedOver"):
        is_begun = moves[MoveState.DONE] or moves[MoveState.MOVING]
        changes = [] if is_begun else find_changes(it.plan, sight.state, sight.now)
        if changes:
            return Replan(_stale(it.plan["id"], changes))
        return HandOver(moves[MoveState.NOT_MOVED])
    if moves[MoveState.MOVING]:
        return Tell("Moving", _describe(moves), count_moves(moves))
    return _finish(it, moves, sight.state)


def _decide_cancelling(it: RebalanceView, moves: Mapping[MoveState, Sequence[Move]]) -> Step:
    if moves[MoveState.MOVING]:
        return CallBack(moves[MoveState.MOVING])
    if it.is_deleting:
        return DropFinalizer()
    return End("Cancelled", "Cancelled", _describe(moves), count_moves(moves))


def _decide_paused(
    it: RebalanceView,
    moves: Mapping[MoveState, Sequence[Move]],
    state: ControllerState,
    disturbance: Tell | None,
) -> Step:
    if not it.spec.paused and disturbance is None:
        return Enter("Moving", "it goes on")
    queued = [move for move in moves[MoveState.MOVING] if is_queued(move, state)]
    if queued:
        return CallBack(queued)
    if moves[MoveState.MOVING] or moves[MoveState.NOT_MOVED]:
        if disturbance is None:
            return Tell("Paused", _describe(moves), count_moves(moves))
        message = f"{disturbance.message}; {_describe(moves)}"
        return Tell(disturbance.reason, message, count_moves(moves))
    return _finish(it, moves, state)


def _finish(
    it: RebalanceView, moves: Mapping[MoveState, Sequence[Move]], state: ControllerState
) -> End:
    elections = [move for move in moves[MoveState.DONE] if needs_election(move, state)]
    message, progress = _describe(moves), count_moves(moves)
    if not moves[MoveState.NOT_MOVED]:
        return End("Complete", "Complete", message, progress, elections)
    first = moves[MoveState.NOT_MOVED][0]
    refusals = it.status.get("refusals") or ()
    if refusals:
        why = f"{refusals[0]['topic']}-{refusals[0]['partition']}: {refusals[0]['message']}"
    else:
        why = f"{first['topic']}-{first['partition']} was cancelled, or could not be moved"
    return End("Failed", "NotMoved", f"{message}; {why}", progress, elections)


def count_moves(moves: Mapping[MoveState, Sequence[Move]]) -> dict[str, int]:
    """Return the progress in the form of the status."""
    return {
        "done": len(moves[MoveState.DONE]),
        "moving": len(moves[MoveState.MOVING]),
        "notMoved": len(moves[MoveState.NOT_MOVED]),
        "changedSince": len(moves[MoveState.CHANGED]),
    }


def _describe(moves: Mapping[MoveState, Sequence[Move]]) -> str:
    count = count_moves(moves)
    text = f"{count['done']} of {sum(count.values())} partitions done"
    for name, words in (
        ("moving", "moving or waiting"),
        ("notMoved", "not moved"),
        ("changedSince", "changed by others meanwhile"),
    ):
        if count[name]:
            text += f", {count[name]} {words}"
    return text


def _stale(plan_id: str, changes: Sequence[str]) -> str:
    more = len(changes) - CHANGES_SAID
    said = [*changes[:CHANGES_SAID], *([f"and {more} changes more"] if more > 0 else [])]
    return f"plan {plan_id} is stale, and nothing was moved: {'; '.join(said)}"
