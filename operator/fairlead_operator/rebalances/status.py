"""A Rebalance's status while it is changed: conditions and phase change together. Pure."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from fairlead_operator.conditions import api_time, find_condition, set_condition, shortened
from fairlead_operator.rebalances.automatic import read_memory, remember_moves
from fairlead_operator.rebalances.steps import STALE
from fairlead_operator.resources.condition import MESSAGE_LENGTH_MAX
from fairlead_operator.resources.rebalance import REFUSALS_MAX, AutomaticLimits


class RebalanceStatusDraft:
    """A copy of the resource's status, changed step by step."""

    def __init__(self, rebalance: Mapping[str, Any]) -> None:
        self._before: dict[str, Any] = dict(rebalance.get("status") or {})
        self._values: dict[str, Any] = deepcopy(self._before)
        self._generation = int(rebalance["metadata"].get("generation") or 1)

    def tell(
        self,
        reason: str,
        message: str,
        now: datetime,
        *,
        progress: Mapping[str, int] | None = None,
        is_disturbed: bool = False,
    ) -> None:
        """Report why there is no progress; the phase stays."""
        if is_disturbed:
            self._remember(disturbedAt=api_time(now))
        self._values.setdefault("phase", "Pending")
        if "plan" not in self._values:
            self._claim("ProposalReady", False, reason, message, now)
        self._claim("Complete", False, reason, message, now)
        if progress is not None:
            self._values["progress"] = dict(progress)

    def watch(self, reason: str, message: str, is_even: bool | None, now: datetime) -> None:
        """Report why the mode Auto begins no round."""
        self._values["phase"] = "Watching"
        self._claim("Balanced", is_even, reason, message, now)
        self.tell(reason, message, now)

    def begin_round(self, plan: Mapping[str, Any], why: str, now: datetime) -> None:
        """Adopt a plan of the mode Auto, which needs no approval."""
        for name in ("progress", "refusals"):
            self._values.pop(name, None)
        self._values |= {"phase": "ProposalReady", "plan": dict(plan), "isHandedOver": False}
        self._remember(why=why)
        message = f"plan {plan['id']} was made: {describe_plan(plan)}"
        self._claim("ProposalReady", True, "PlanMade", message, now)
        self._claim("Balanced", False, "Uneven", why, now)
        self._claim("Complete", False, "RoundBegins", f"{why}; {message}", now)

    def end_round(
        self,
        outcome: str,
        message: str,
        progress: Mapping[str, int],
        limits: AutomaticLimits,
        now: datetime,
    ) -> None:
        """Return to Watching; the partitions of the plan rest, wherever they are now."""
        auto, plan = dict(self._values.get("auto") or {}), self._values["plan"]
        moves = [(move["topic"], move["partition"]) for move in plan["moves"]]
        moved = remember_moves(read_memory(self._values), moves, limits, now)
        self._remember(
            rounds=auto.get("rounds", 0) + 1,
            failedRounds=auto.get("failedRounds", 0) + (outcome == "Failed"),
            resting=[
                {"topic": at[0], "partition": at[1], "since": api_time(each.since)}
                | {"times": each.times}
                for at, each in moved.items()
            ],
            lastRound={
                "plan": plan["id"],
                "why": auto.get("why", ""),
                "outcome": outcome,
                "endedAt": api_time(now),
                "done": progress["done"],
                "bytes": plan.get("bytes", 0),
            },
        )
        self._values |= {"phase": "Watching", "progress": dict(progress)}
        self._claim("Complete", False, f"Round{outcome}", message, now)

    def propose(self, plan: Mapping[str, Any], now: datetime) -> None:
        """Show a plan that waits for its approval."""
        before = find_condition(self._values.get("conditions") or (), "Complete") or {}
        self._values |= {"phase": "ProposalReady", "plan": dict(plan), "isHandedOver": False}
        advice = f"set spec.approve to {plan['id']} to carry this plan out"
        message = f"plan {plan['id']} was made: {describe_plan(plan)}"
        self._claim("ProposalReady", True, "PlanMade", message, now)
        if before.get("reason") == STALE:
            advice = f"{shortened(before['message'], MESSAGE_LENGTH_MAX - 100)}; {advice}"
            self._claim("Complete", False, STALE, advice, now)
        else:
            self._claim("Complete", False, "AwaitingApproval", advice, now)

    def replan(self, message: str, now: datetime) -> None:
        """Drop a plan."""
        for name in ("plan", "progress", "refusals", "isHandedOver"):
            self._values.pop(name, None)
        self._values["phase"] = "Pending"
        self.tell(STALE, message, now)

    def enter(self, phase: str, message: str, now: datetime) -> None:
        """Enter a phase that is not the last; the remaining moves are handed over again."""
        self._values |= {"phase": phase, "isHandedOver": False}
        self._claim("Complete", False, phase, message, now)

    def hand_over(self, refusals: Sequence[Mapping[str, Any]]) -> None:
        """Record that the controller has all moves, and which it refuses."""
        self._values["isHandedOver"] = True
        self.note_refusals(refusals)

    def note_refusals(self, refusals: Sequence[Mapping[str, Any]]) -> None:
        """Keep the last refusals."""
        self._values["refusals"] = [
            {**each, "message": shortened(each["message"])} for each in refusals[:REFUSALS_MAX]
        ]

    def end(
        self,
        phase: str,
        reason: str,
        message: str,
        now: datetime,
        *,
        progress: Mapping[str, int] | None = None,
    ) -> None:
        """End the Rebalance."""
        self._values["phase"] = phase
        if "plan" not in self._values:
            self._claim("ProposalReady", False, reason, message, now)
        self._claim("Complete", phase == "Complete", reason, message, now)
        if phase == "Failed":
            self._claim("Failed", True, reason, message, now)
        if progress is not None:
            self._values["progress"] = dict(progress)

    def as_patch(self) -> dict[str, Any]:
        """Return the changes as a merge patch; empty if nothing has changed."""
        return _merge_patch(self._before, self._values)

    def whole(self, patch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that a patch changes with their whole values; None if removed."""
        return {name: self._values.get(name) for name in patch}

    def _remember(self, **values: Any) -> None:
        self._values["auto"] = {**(self._values.get("auto") or {}), **values}

    def _claim(
        self, type: str, status: bool | None, reason: str, message: str, now: datetime
    ) -> None:
        self._values["observedGeneration"] = self._generation
        self._values["conditions"] = set_condition(
            self._values.get("conditions") or (),
            type,
            status,
            reason,
            message,
            generation=self._generation,
            now=now,
        )


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from `before` to `after` (RFC 7386): removed fields are null."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        known = before.get(name)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            if inner := _merge_patch(known, value):
                patch[name] = inner
        elif value != known:
            patch[name] = value
    return patch


def describe_plan(plan: Mapping[str, Any]) -> str:
    """Return a sentence with what moves, how much that is and how long it takes."""
    text = (
        f"{plan['partitions']} partitions get other replicas, {plan['leaders']} another preferred "
        "leader"
    )
    if plan.get("bytes") is not None:
        text += f"; {format_bytes(plan['bytes'])} to copy"
    if plan.get("durationSeconds"):
        text += f", which takes at least {timedelta(seconds=plan['durationSeconds'])}"
    return text


def format_bytes(size: int) -> str:
    """Return bytes in a readable form: three digits and a unit."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.3g} {units[0]}"
