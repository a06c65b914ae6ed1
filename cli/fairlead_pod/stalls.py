"""A process made slow: SIGSTOP and SIGCONT stop and continue it in turn. Pure.

It models a machine that gives the process too little processor time, or a disk whose writes block
it: a broker appends in its only event loop, so a blocked write delays everything.
"""

STALL_MAX_MS = 10_000


class StallCycle:
    """Turns until `until_s`; `is_still` is whether the process should be stopped now."""

    def __init__(self, now_s: float, duration_ms: int, stall_ms: int, run_ms: int) -> None:
        self.until_s = now_s + duration_ms / 1000
        self.is_still = True
        self._stall_s = stall_ms / 1000
        self._run_s = run_ms / 1000
        self.turn_at_s = min(now_s + self._stall_s, self.until_s)

    def turn(self, now_s: float) -> bool:
        """Take the next turn if it is due; tell whether to signal the process."""
        if now_s < self.turn_at_s:
            return False
        was_still = self.is_still
        self.is_still = not was_still and now_s < self.until_s
        length_s = self._stall_s if self.is_still else self._run_s
        self.turn_at_s = min(now_s + length_s, max(self.until_s, now_s))
        return self.is_still != was_still

    def is_over(self, now_s: float) -> bool:
        """Tell whether the process runs without stalls from now on."""
        return not self.is_still and now_s >= self.until_s


def read_stalls(argument: str) -> tuple[int, int, int] | None:
    """Return duration, stall and run from a line's argument; None if it is invalid."""
    texts = argument.split()
    if len(texts) != 3 or not all(text.isdecimal() for text in texts):
        return None
    duration_ms, stall_ms, run_ms = map(int, texts)
    are_turns = 0 < stall_ms <= STALL_MAX_MS and 0 < run_ms <= STALL_MAX_MS
    return (duration_ms, stall_ms, run_ms) if are_turns and duration_ms > 0 else None
