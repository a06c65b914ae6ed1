"""When to replace a process that does not answer: takes observations, returns verdicts. Pure.

* Silence counts from the last answer, and only as far as the process itself may cause it. Time in
  which it waited for a processor does not count, nor anything before a pause of the watcher itself
  (a laptop that slept, a SIGSTOP, a machine too busy for a judgement).
* A process that a signal has stopped is replaced after the first patience each time. If it is
  continued before that, it can answer only from then on, so its silence starts again.
* A process that was silent although it might have run may just be slow, and its successor, too. So
  each of these verdicts doubles the patience, up to a limit, until the process has answered for a
  long time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PATIENCE_MAX_S: Final = 60.0
FORGIVEN_AFTER_S: Final = 600.0
"""After answers for so long without a verdict, the first patience applies again."""
OWN_PAUSE_S: Final = 0.75
"""Three observations. If the next one is later than that, the watcher itself has paused."""


@dataclass(frozen=True, slots=True)
class Look:
    """An observation of the process. Times are of a clock that goes on during suspend."""

    at_s: float
    has_answered: bool
    """Whether it has answered since the last observation."""
    waited_s: float = 0.0
    """How long it has waited for a processor since its start."""
    is_stopped: bool = False
    """Whether SIGSTOP has stopped it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Replace the process."""

    silent_s: float
    is_stopped: bool
    next_patience_s: float
    """The patience for its successor."""


class FreezeJudgement:
    """Judges all processes that follow each other under one name."""

    def __init__(self, patience_s: float) -> None:
        self._patience_first_s = patience_s
        self._verdicts = 0
        self._answering_since_s: float | None = None
        self._last: Look | None = None
        self._silent_s = 0.0

    @property
    def patience_s(self) -> float:
        """How much silence is allowed now."""
        most = max(PATIENCE_MAX_S, self._patience_first_s)
        return min(self._patience_first_s * 2.0**self._verdicts, most)

    def begin(self) -> None:
        """Start again for another process, which serves now."""
        self._last = None
        self._silent_s = 0.0

    def take(self, look: Look) -> Verdict | None:
        """Return a verdict if the silence has lasted too long at this observation."""
        last, self._last = self._last, look
        if look.has_answered:
            self._on_answer(look.at_s)
        if last is None:
            return None
        elapsed_s = look.at_s - last.at_s
        has_woken = last.is_stopped and not look.is_stopped
        if look.has_answered or has_woken or elapsed_s > OWN_PAUSE_S:
            self._silent_s = 0.0
            return None
        # The kernel reports 0 for a process that has just ended, so the difference may be negative.
        waited_s = max(0.0, look.waited_s - last.waited_s)
        self._silent_s += max(0.0, elapsed_s - waited_s)
        if self._silent_s < self.patience_s:
            return None
        self._answering_since_s = None
        if not look.is_stopped:
            self._verdicts = min(self._verdicts + 1, 32)
        return Verdict(self._silent_s, look.is_stopped, self.patience_s)

    def _on_answer(self, now_s: float) -> None:
        if self._answering_since_s is None:
            self._answering_since_s = now_s
        elif now_s - self._answering_since_s >= FORGIVEN_AFTER_S:
            self._verdicts = 0
