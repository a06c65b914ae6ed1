"""How slow commits were before and during a fault, and when they were fast again."""

from fairlead_cli.drill.commits import CommitTimes, measure_commits
from fairlead_cli.drill.probe import Answer


def commit(began: float, took_ms: float, attempts: int = 1) -> Answer:
    ended = began + took_ms / 1000
    return Answer(ended - 0.001, ended, began) if attempts > 1 else Answer(began, ended)


BEFORE = [commit(9 + i / 128, 9.765625) for i in range(90)]


def test_a_commit_lasts_from_the_first_attempt_to_send_it() -> None:
    during = [commit(10.125, 240), commit(10.5, 875, attempts=4)]
    times = measure_commits([*BEFORE, *during, commit(12, 9)], 10.0, 11.9)
    assert times == CommitTimes(before_p99_ms=10, p99_ms=875, fast_again_ms=1375)


def test_what_follows_the_fault_does_not_make_it_look_quick() -> None:
    after = [commit(20 + i / 100, 5) for i in range(1000)]
    times = measure_commits([*BEFORE, commit(10.125, 250), *after], 10.0, 15.0)
    assert times.p99_ms == 250
    assert times.fast_again_ms == 375


def test_a_fault_that_slows_nothing_is_fast_at_once() -> None:
    times = measure_commits([*BEFORE, commit(10.125, 31.25)], 10.0, 11.0)
    assert times == CommitTimes(before_p99_ms=10, p99_ms=32, fast_again_ms=0)


def test_without_commits_there_is_nothing_to_say() -> None:
    assert measure_commits([], 1.0, 2.0) == CommitTimes(None, None, None)
