"""When a process that does not answer is to be replaced: looks and time in, verdicts out. Pure.

* Silence counts from the last answer, and only while it can be the process' own fault: not the time
  that it waited for a processor, and nothing from before a pause of the watcher itself (a laptop
  that slept, a SIGSTOP, a machine that is too busy to judge anybody).
* A process that was stopped by a signal is replaced after the first patience each time; one that
  was woken in time can answer only from then on, so its silence begins anew.
* One that was silent while it might have run may just be slow, and its successor as slow: each such
  verdict doubles the patience, up to a bound, and only a long time of answers forgets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PATIENCE_MAX_S: Final = 60.0
FORGIVEN_AFTER_S: Final = 600.0
"""Answers without a verdict for so long: the next silence meets the first patience again."""
OWN_PAUSE_S: Final = 0.75
"""Three looks. A look that comes later than that after the one before says that it is us."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of the process at one moment. Times are of a clock that goes on in suspend."""

    at_s: float
    has_answered: bool
    """Since the last look."""
    waited_s: float = 0.0
    """How long it has waited for a processor since it was started."""
    is_stopped: bool = False
    """Whether it waits for SIGCONT."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Replace it."""

    silent_s: float
    is_stopped: bool
    next_patience_s: float
    """What its successor is given."""


class FreezeJudgement:
    """One for all the processes that follow each other under one name."""

    def __init__(self, patience_s: float) -> None:
        self._patience_first_s = patience_s
        self._verdicts = 0
        self._answering_since_s: float | None = None
        self._last: Look | None = None
        self._silent_s = 0.0

    @property
    def patience_s(self) -> float:
        """How much silence is borne now."""
        most = max(PATIENCE_MAX_S, self._patience_first_s)
        return min(self._patience_first_s * 2.0**self._verdicts, most)

    def begin(self) -> None:
        """Another process is there, and serves."""
        self._last = None
        self._silent_s = 0.0

    def take(self, look: Look) -> Verdict | None:
        """Give a verdict when this look is one too many without an answer."""
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
        # Of a process that has just ended nothing is told any more: it seems to have waited less.
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
