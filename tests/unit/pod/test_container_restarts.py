"""When process 1 of a container starts a child again."""

from fairlead_pod.restarts import (
    DELAY_MAX_S,
    EXIT_USAGE,
    GIVE_UP_AFTER_S,
    GOOD_RUN_S,
    STEADY_RUN_S,
    FailureHistory,
)


def history_of(*runs_s: float) -> tuple[FailureHistory, float]:
    """Runs that follow each other at once, and when the last ended."""
    history, now_s = FailureHistory(), 0.0
    for ran_s in runs_s:
        history = history.after_run(now_s, now_s + ran_s)
        now_s += ran_s
    return history, now_s


def test_the_first_restart_is_immediate_and_later_ones_wait_longer() -> None:
    delays = [history_of(*[1.0] * runs)[0].delay_s for runs in range(1, 10)]
    assert delays == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert history_of(*[1.0] * 5000)[0].delay_s == DELAY_MAX_S


def test_a_steady_run_makes_the_next_restart_immediate() -> None:
    assert history_of(1, 1, 1, STEADY_RUN_S)[0].delay_s == 0.0


def test_gives_up_after_minutes_without_a_good_run() -> None:
    history, now_s = history_of(*[STEADY_RUN_S] * 20)
    assert not history.gives_up(1, now_s)
    assert history.gives_up(1, GIVE_UP_AFTER_S + STEADY_RUN_S)


def test_a_good_run_forgets_all_failures() -> None:
    history, now_s = history_of(*[STEADY_RUN_S] * 20, GOOD_RUN_S)
    assert history.short_runs == 1
    assert not history.gives_up(1, now_s + STEADY_RUN_S)


def test_a_usage_error_is_not_tried_again() -> None:
    assert FailureHistory().gives_up(EXIT_USAGE, 0.0)
    assert not history_of(0.1)[0].gives_up(1, 0.1)
