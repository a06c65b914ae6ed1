"""When the mode Auto begins a round, and with which plan: a pure function of loads and history.

It never goes to and fro, for four reasons. A round begins above one threshold and aims at a lower
one. It must be worth it. Rounds are apart by a cool-down. And what was moved rests: whatever its
load does meanwhile, no partition moves twice in that time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from fairlead_controller.decisions.balance.facts import Goal, Standing
from fairlead_controller.decisions.balance.ledger import Ledger
from fairlead_controller.decisions.state import ControllerState
from fairlead_operator.conditions import api_time
from fairlead_operator.rebalances.measured_load import MeasuredLoad
from fairlead_operator.rebalances.plan_status import (
    Draft,
    Facts,
    PlanLimits,
    describe_draft,
    draft_plan,
    judged_goals,
    read_facts,
)
from fairlead_operator.rebalances.steps import LONG_AGO
from fairlead_operator.resources.rebalance import RESTING_MAX, AutomaticLimits

URGENT_QUIET_S: Final = 60
"""How long a broker that holds nothing waits at most after a disturbance, such as its own start."""
_MEASURES: Final[Mapping[Goal, tuple[str, float]]] = {
    Goal.DISKS: ("bytes", 1 << 30),
    Goal.REPLICAS: ("replicas", 2),
    Goal.LEADERS: ("leaders", 2),
    Goal.BYTES_IN: ("bytes_in", 1 << 20),
    Goal.BYTES_OUT: ("bytes_out", 1 << 20),
}
"""What is compared for a goal, and by how much a broker is off at least: one replica is a large
part of three, and a kilobyte a large part of nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What has to be known of before."""

    disturbed_at: datetime | None = None
    ended_at: datetime | None = None
    """When the last round ended."""
    resting: Mapping[tuple[str, int], datetime] = field(default_factory=dict)
    """Since when partitions stay."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Begin nothing now."""

    reason: str
    message: str
    is_even: bool | None = None
    """None where that is not known."""
    until: datetime | None = None
    """When it may be otherwise, whatever the cluster does."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a round with this plan, as the status has it."""

    plan: Mapping[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a round should begin."""

    why: str
    empty: int | None = None
    """The broker that holds nothing, if that is why."""

    @property
    def is_urgent(self) -> bool:
        """Whether it waits for no cool-down, and need not be worth it."""
        return self.empty is not None


def read_memory(status: Mapping[str, Any]) -> Memory:
    """Return what a status remembers."""
    auto = status.get("auto") or {}
    disturbed_at, last = auto.get("disturbedAt"), auto.get("lastRound")
    return Memory(
        disturbed_at=datetime.fromisoformat(disturbed_at) if disturbed_at else None,
        ended_at=datetime.fromisoformat(last["endedAt"]) if last else None,
        resting={
            (each["topic"], each["partition"]): datetime.fromisoformat(each["since"])
            for each in auto.get("resting") or ()
        },
    )


def still_resting(memory: Memory, limits: AutomaticLimits, now: datetime) -> dict[Any, datetime]:
    """Return the partitions that stay for now, with since when."""
    rest = timedelta(seconds=limits.rest_seconds)
    return {at: since for at, since in memory.resting.items() if now - since < rest}


def decide_round(
    state: ControllerState,
    load: MeasuredLoad,
    limits: AutomaticLimits,
    memory: Memory,
    now: datetime,
) -> Begin | Wait:
    """Decide for a cluster with which nothing is wrong now."""
    if not load.is_whole:
        return Wait("NotMeasured", " ".join(load.missing[:3]))
    resting = still_resting(memory, limits, now)
    room = PlanLimits(
        moves=min(limits.max_moves, RESTING_MAX - len(resting)),
        bytes=limits.max_gibibytes << 30,
        staying=resting.keys(),
    )
    facts = read_facts(state, load, room)
    standing = Ledger(facts.brokers, facts.partitions).standing()
    causes = list(_find_causes(facts, standing, load, limits))
    if causes:
        reason, until = _earliest(causes[0], limits, memory)
        if now < until:
            message = f"{causes[0].why}; no round begins before {api_time(until)}"
            return Wait(reason, message, is_even=False, until=until)
    draft = draft_plan(facts, room) if causes else None
    if draft is not None:
        # With more brokers than replicas one of them stays empty.
        coming = {each for move in draft.kept.moves for each in move.adding}
        causes = [each for each in causes if not each.is_urgent or each.empty in coming]
    if draft is None or not causes:
        message = f"no broker is off its share by more than {limits.start_above_percent} %"
        return Wait("Even", message, is_even=True)
    if (doubt := _find_doubt(causes[0], draft, load, limits)) is not None:
        return doubt
    return Begin(describe_draft(state, load, draft, now), causes[0].why)


def _earliest(cause: _Cause, limits: AutomaticLimits, memory: Memory) -> tuple[str, datetime]:
    """Return when a round may begin, and what it waits for until then."""
    quiet = cool = LONG_AGO
    if memory.disturbed_at is not None:
        seconds = limits.quiet_seconds
        quiet = memory.disturbed_at + timedelta(
            seconds=min(seconds, URGENT_QUIET_S) if cause.is_urgent else seconds
        )
    if memory.ended_at is not None and not cause.is_urgent:
        cool = memory.ended_at + timedelta(seconds=limits.cool_down_seconds)
    return ("Quiet", quiet) if quiet >= cool else ("CoolingDown", cool)


def _find_doubt(
    cause: _Cause, draft: Draft, load: MeasuredLoad, limits: AutomaticLimits
) -> Wait | None:
    """Say why a plan is not worth a round."""
    if not draft.kept.moves:
        message = f"{cause.why}; nothing that may move within the limits makes it better"
        return Wait("NothingBetter", message, is_even=False)
    goal, part = _improvement(draft, load)
    if cause.is_urgent or part >= limits.min_improvement_percent:
        return None
    message = f"{cause.why}; a round would better {goal} by {part:.0f} % only"
    return Wait("NotWorthIt", message, is_even=False)


def _find_causes(
    facts: Facts, standing: Standing, load: MeasuredLoad, limits: AutomaticLimits
) -> Iterator[_Cause]:
    """Yield why a round should begin, the most urgent first."""
    shares = standing.shares
    accepting = [each for each in facts.brokers if not each.is_cordoned]
    for broker in accepting:
        if not shares[broker.broker_id].replicas:
            yield _Cause(f"broker {broker.broker_id} holds nothing", broker.broker_id)
    if standing.distances[Goal.RACKS]:
        yield _Cause("replicas are on too few machines or racks")
    whole = sum(each.capacity for each in accepting)
    for goal in judged_goals(load):
        if goal not in _MEASURES:
            continue
        name, least = _MEASURES[goal]
        total = sum(getattr(share, name) for share in shares.values())
        worst, off = 0.0, ""
        for broker in accepting:
            fair = total * broker.capacity / whole
            surplus = getattr(shares[broker.broker_id], name) - fair
            percent = 100 * abs(surplus) / fair if fair else 0.0
            if percent > worst and abs(surplus) >= least:
                side = "above" if surplus > 0 else "below"
                worst, off = percent, f"broker {broker.broker_id} is {percent:.0f} % {side}"
        if worst > limits.start_above_percent:
            yield _Cause(f"{goal}: {off} its share")


def _improvement(draft: Draft, load: MeasuredLoad) -> tuple[Goal, float]:
    """Return by what part the first goal that changes gets better, in percent."""
    before, after = draft.kept.before.distances, draft.kept.after.distances
    for goal in judged_goals(load):
        if round(before[goal], 3) != round(after[goal], 3):
            return goal, 100 * (1 - after[goal] / before[goal]) if before[goal] else -100.0
    return Goal.RACKS, 0.0
