"""A drill's status while it is changed: conditions and phase change together. Pure."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

from fairlead_operator.conditions import find_condition, set_condition, shortened

KEPT_BETWEEN_ROUNDS: Final = frozenset({"history", "round", "conditions", "observedGeneration"})
MESSAGE_MAX: Final = 1024
_FIGURES: Final = ("detectionMs", "electionMs", "recoveryMaxMs", "lost", "duplicates")


class DrillStatus:
    """A copy of the drill's status; `values` is what will be written."""

    def __init__(self, drill: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = deepcopy(dict(drill.get("status") or {}))
        self._generation = int(drill["metadata"].get("generation") or 1)

    @property
    def phase(self) -> str:
        """The drill's phase."""
        return str(self.values.get("phase") or "Pending")

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs that were measured so far."""
        return list(self.values.get("runs") or ())

    def hold(self, reason: str, message: str, now: datetime) -> bool:
        """Stay pending; tell whether the status has changed."""
        return self._enter("Pending", reason, message, now)

    def enter(self, phase: str, message: str, now: datetime) -> bool:
        """Enter a phase that is not the last; tell whether the status has changed."""
        return self._enter(phase, phase, message, now)

    def refuse(self, reason: str, message: str, now: datetime) -> None:
        """End before any run has begun."""
        self._end("Refused", reason, message, now)
        self._claim("Passed", False, "Refused", message, now)

    def finish(self, *, is_passed: bool, problem: str, message: str, now: datetime) -> None:
        """End with a verdict; a problem is the reason for an early end."""
        reason = "Aborted" if problem else "Finished"
        self._end("Finished", reason, problem or "all runs were done and everything read", now)
        self._claim("Passed", is_passed, "WithinLimits" if is_passed else "Failed", message, now)

    def start_round(self, due: datetime, now: datetime) -> None:
        """Begin a scheduled drill: the history keeps what the last one has left."""
        for name in self.values.keys() - KEPT_BETWEEN_ROUNDS:
            self.values[name] = None
        self.values |= {
            "phase": "Pending",
            "round": int(self.values.get("round") or 0) + 1,
            "dueAt": _stamp(due),
            "startedAt": _stamp(now),
            "endedAt": None,
            "nextRunAt": None,
        }

    def end_round(self, verdict: str, message: str, limit: int, now: datetime) -> None:
        """Record the result of a scheduled drill in the history."""
        names = ("dueAt", "startedAt", *_FIGURES)
        past = {name: self.values[name] for name in names if self.values.get(name) is not None}
        past |= {"verdict": verdict, "message": message[:MESSAGE_MAX]}
        self.values["history"] = [past, *(self.values.get("history") or ())][:limit]
        self.values["endedAt"] = _stamp(now)

    def note_next(self, due: datetime) -> bool:
        """Set when the schedule is due next; tell whether that has changed."""
        if self.values.get("nextRunAt") == _stamp(due):
            return False
        self.values["nextRunAt"] = _stamp(due)
        return True

    def add_run(self, run: dict[str, Any], timeline: list[dict[str, Any]]) -> None:
        """Keep the result of a run; the timeline is that of the last run."""
        self.values["runs"] = [*self.runs, run]
        self.values["timeline"] = timeline

    def as_patch(self) -> dict[str, Any]:
        """Return the whole status as a patch; lists replace those in the object."""
        return self.values

    def _enter(self, phase: str, reason: str, message: str, now: datetime) -> bool:
        conditions = self.values.get("conditions") or ()
        before = find_condition(conditions, "Complete") or {}
        is_same = (before.get("reason"), before.get("message")) == (reason, shortened(message))
        if is_same and self.values.get("phase") == phase:
            return False
        self.values["phase"] = phase
        self._claim("Complete", False, reason, message, now)
        self._claim("Passed", None, reason, "not known yet", now)
        return True

    def _end(self, phase: str, reason: str, message: str, now: datetime) -> None:
        self.values["phase"] = phase
        self._claim("Complete", True, reason, message, now)

    def _claim(
        self, type: str, status: bool | None, reason: str, message: str, now: datetime
    ) -> None:
        self.values["observedGeneration"] = self._generation
        self.values["conditions"] = set_condition(
            self.values.get("conditions") or (),
            type,
            status,
            reason,
            message,
            generation=self._generation,
            now=now,
        )


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
