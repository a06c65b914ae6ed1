"""When a child that ended is started again, and when that has been tried for long enough. Pure.

The first restart is at once: a broker that was killed comes back faster than anyone could notice.
One that keeps dying waits longer each time, so that it cannot keep a core busy, and after minutes
without one good run the container ends with the child's exit code: then the pod's status says
CrashLoopBackOff, which is what people look for.
"""

EXIT_USAGE = 2
"""A bad setting or argument: starting again with the same ones cannot help."""

STEADY_RUN_S = 10.0
"""A run at least that long makes the next restart immediate again."""
GOOD_RUN_S = 60.0
"""A run at least that long forgets all failures before it."""
GIVE_UP_AFTER_S = 300.0
DELAY_MIN_S = 0.25
DELAY_MAX_S = 10.0


class FailureHistory:
    """What is remembered of one child: its short runs, and since when it had no good one."""

    __slots__ = ("failing_since_s", "short_runs")

    def __init__(self, short_runs: int = 0, failing_since_s: float | None = None) -> None:
        self.short_runs = short_runs
        self.failing_since_s = failing_since_s

    def after_run(self, started_s: float, ended_s: float) -> "FailureHistory":
        """Give the history with one more run that ended by itself."""
        ran_s = ended_s - started_s
        if ran_s >= GOOD_RUN_S or self.failing_since_s is None:
            return FailureHistory(1, ended_s)
        short_runs = 1 if ran_s >= STEADY_RUN_S else self.short_runs + 1
        return FailureHistory(short_runs, self.failing_since_s)

    @property
    def delay_s(self) -> float:
        """How long to wait before the next start: 0, then 0.25 s doubling up to 10 s."""
        if self.short_runs <= 1:
            return 0.0
        return min(DELAY_MIN_S * 2.0 ** min(self.short_runs - 2, 30), DELAY_MAX_S)

    def gives_up(self, exit_code: int, now_s: float) -> bool:
        """Tell whether the container should end instead of starting the child once more."""
        if exit_code == EXIT_USAGE:
            return True
        return self.failing_since_s is not None and now_s - self.failing_since_s >= GIVE_UP_AFTER_S
