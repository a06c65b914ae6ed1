"""When the mode Auto begins a round, and with which plan: a pure function of loads and history.

It does not move partitions back and forth, for four reasons. A round begins above one threshold and
aims at a lower one. The improvement above the threshold must be worth the moves. A cool-down
separates rounds. And a moved partition rests, whatever its load does meanwhile; if it has to move
again soon after, it rests twice as long.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

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

ROUNDING: Final = 1e-3
REMEMBERED_RESTS: Final = 4
TIMES_MAX: Final = 8
URGENT_QUIET_S: Final = 60
"""How long an empty broker waits at most after a disturbance, such as its own start."""
_MEASURES: Final[Mapping[Goal, tuple[str, float]]] = {
    Goal.DISKS: ("bytes", 1 << 30),
    Goal.REPLICAS: ("replicas", 2),
    Goal.LEADERS: ("leaders", 2),
    Goal.BYTES_IN: ("bytes_in", 1 << 20),
    Goal.BYTES_OUT: ("bytes_out", 1 << 20),
}
"""The measure of a goal, and the least deviation of a broker that counts: one replica is a large
part of three, and a kilobyte a large part of nothing."""


class Moved(NamedTuple):
    """When a partition was last moved, and how many times with little time in between."""

    since: datetime
    times: int = 1

    def rest(self, limits: AutomaticLimits) -> timedelta:
        """Return how long it rests."""
        return timedelta(seconds=limits.rest_seconds << (self.times - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The facts of earlier rounds."""

    disturbed_at: datetime | None = None
    ended_at: datetime | None = None
    """When the last round ended."""
    moved: Mapping[tuple[str, int], Moved] = field(default_factory=dict)
    """Partitions that were moved not long ago."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Begin no round now."""

    reason: str
    message: str
    is_even: bool | None = None
    """None if unknown."""
    until: datetime | None = None
    """When the decision may change, even if the cluster does not."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a round with this plan, in the form of the status."""

    plan: Mapping[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a round should begin."""

    why: str
    goal: Goal
    empty: int | None = None
    """The empty broker, if that is the cause."""

    @property
    def is_urgent(self) -> bool:
        """Whether it waits for no cool-down, and need not be worth the moves."""
        return self.empty is not None


def read_memory(status: Mapping[str, Any]) -> Memory:
    """Return the memory that a status holds."""
    auto = status.get("auto") or {}
    disturbed_at, last = auto.get("disturbedAt"), auto.get("lastRound")
    return Memory(
        disturbed_at=datetime.fromisoformat(disturbed_at) if disturbed_at else None,
        ended_at=datetime.fromisoformat(last["endedAt"]) if last else None,
        moved={
            (each["topic"], each["partition"]): Moved(
                datetime.fromisoformat(each["since"]), each["times"]
            )
            for each in auto.get("resting") or ()
        },
    )


def remember_moves(
    memory: Memory, moves: Iterable[tuple[str, int]], limits: AutomaticLimits, now: datetime
) -> dict[tuple[str, int], Moved]:
    """Return the partitions moved not long ago, after a round with these moves has ended.

    They are remembered for several rests. If they are too many, those that still rest are kept.
    """
    known = {
        at: each
        for at, each in memory.moved.items()
        if now - each.since < REMEMBERED_RESTS * each.rest(limits)
    }
    new = {}
    for at in moves:
        before = known.pop(at, None)
        new[at] = Moved(now, 1 if before is None else min(before.times + 1, TIMES_MAX))
    longest = sorted(known.items(), key=lambda item: item[1].since + item[1].rest(limits))
    return dict(longest[-(RESTING_MAX - len(new)) :]) | new


def decide_round(
    state: ControllerState,
    load: MeasuredLoad,
    limits: AutomaticLimits,
    memory: Memory,
    now: datetime,
) -> Begin | Wait:
    """Decide about a healthy cluster."""
    if not load.is_whole:
        return Wait("NotMeasured", " ".join(load.missing[:3]))
    resting = [at for at, moved in memory.moved.items() if now - moved.since < moved.rest(limits)]
    room = PlanLimits(
        moves=min(limits.max_moves, RESTING_MAX - len(resting)),
        bytes=limits.max_gibibytes << 30,
        staying=resting,
    )
    facts = read_facts(state, load, room)
    standing = Ledger(facts.brokers, facts.partitions).standing()
    causes = list(_find_causes(facts, standing, load, limits))
    if causes and (wait := _find_wait(causes[0], limits, memory, now)):
        return wait
    if causes and causes[0].is_urgent:
        draft = draft_plan(facts, room)
        # With more brokers than replicas, a broker stays empty.
        if causes[0].empty in {each for move in draft.kept.moves for each in move.adding}:
            return Begin(describe_draft(state, load, draft, now), causes[0].why)
        causes = [each for each in causes if not each.is_urgent]
        # The urgent cause leads to no move; the others wait as if it did not exist.
        if causes and (wait := _find_wait(causes[0], limits, memory, now)):
            return wait
    if not causes:
        message = f"no broker is off its share by more than {limits.start_above_percent} %"
        return Wait("Even", message, is_even=True)
    draft = draft_plan(facts, replace(room, goals={each.goal for each in causes}))
    worth = next((each for each in causes if _is_worth_it(each.goal, draft, load, limits)), None)
    if worth is None:
        least = f"by {limits.min_improvement_percent} %"
        message = f"{causes[0].why}; no moves within the limits improve that {least}"
        return Wait("NotWorthIt", message, is_even=False)
    return Begin(describe_draft(state, load, draft, now), worth.why)


def _find_wait(
    cause: _Cause, limits: AutomaticLimits, memory: Memory, now: datetime
) -> Wait | None:
    """Return what a cause still waits for; None if a round may begin for it."""
    reason, until = _earliest(cause, limits, memory)
    if now >= until:
        return None
    message = f"{cause.why}; no round begins before {api_time(until)}"
    return Wait(reason, message, is_even=False, until=until)


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


def _is_worth_it(goal: Goal, draft: Draft, load: MeasuredLoad, limits: AutomaticLimits) -> bool:
    """Tell whether a goal improves by at least the limit, and no goal before it gets worse.

    An improvement of another goal is no reason: with changing loads there always is one, and a
    different one each time.
    """
    before, after = draft.kept.before.distances, draft.kept.after.distances
    judged = judged_goals(load)
    if any(after[each] > before[each] + ROUNDING for each in judged[: judged.index(goal)]):
        return False
    return after[goal] <= before[goal] * (1 - limits.min_improvement_percent / 100) - ROUNDING


def _find_causes(
    facts: Facts, standing: Standing, load: MeasuredLoad, limits: AutomaticLimits
) -> Iterator[_Cause]:
    """Yield why a round should begin, the most urgent cause first."""
    shares = standing.shares
    accepting = [each for each in facts.brokers if not each.is_cordoned]
    for broker in accepting:
        if not shares[broker.broker_id].replicas:
            why = f"broker {broker.broker_id} holds nothing"
            yield _Cause(why, Goal.REPLICAS, broker.broker_id)
    if standing.distances[Goal.RACKS]:
        yield _Cause("replicas are on too few machines or racks", Goal.RACKS)
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
            yield _Cause(f"{goal}: {off} its share", goal)
