"""When to restart a child that ended, and when to give up. Pure.

The first restart is at once: a killed broker is back before anybody could notice. A child that ends
repeatedly waits longer each time, so that it does not use a whole core. After minutes without a
good run the container ends with the child's exit code; the pod's status then is CrashLoopBackOff,
for which people look.
"""

EXIT_USAGE = 2
"""A setting or argument is wrong: a restart with the same ones cannot help."""

STEADY_RUN_S = 10.0
"""After a run of at least this time, the next restart is immediate again."""
GOOD_RUN_S = 60.0
"""A run of at least this time forgets all failures before it."""
GIVE_UP_AFTER_S = 300.0
DELAY_MIN_S = 0.25
DELAY_MAX_S = 10.0


class FailureHistory:
    """The history of one child: its short runs, and since when it had no good run."""

    __slots__ = ("failing_since_s", "short_runs")

    def __init__(self, short_runs: int = 0, failing_since_s: float | None = None) -> None:
        self.short_runs = short_runs
        self.failing_since_s = failing_since_s

    def after_run(self, started_s: float, ended_s: float) -> "FailureHistory":
        """Return the history with one more run that ended by itself."""
        ran_s = ended_s - started_s
        if ran_s >= GOOD_RUN_S or self.failing_since_s is None:
            return FailureHistory(1, ended_s)
        short_runs = 1 if ran_s >= STEADY_RUN_S else self.short_runs + 1
        return FailureHistory(short_runs, self.failing_since_s)

    @property
    def delay_s(self) -> float:
        """Return the delay before the next start: 0, then 0.25 s doubling up to 10 s."""
        if self.short_runs <= 1:
            return 0.0
        return min(DELAY_MIN_S * 2.0 ** min(self.short_runs - 2, 30), DELAY_MAX_S)

    def gives_up(self, exit_code: int, now_s: float) -> bool:
        """Tell whether the container should end instead of restarting the child."""
        if exit_code == EXIT_USAGE:
            return True
        return self.failing_since_s is not None and now_s - self.failing_since_s >= GIVE_UP_AFTER_S
