"""A slow process's turns, in a clock of the test's own."""

import pytest

from fairlead_pod.stalls import StallCycle, read_stalls


def test_it_stands_still_and_runs_in_turns_and_runs_in_the_end() -> None:
    cycle = StallCycle(10.0, duration_ms=1000, stall_ms=300, run_ms=100)
    turns = []
    now_s = 10.0
    while not cycle.is_over(now_s):
        now_s = cycle.turn_at_s
        if cycle.turn(now_s):
            turns.append((round(now_s - 10, 3), cycle.is_still))
    assert turns == [(0.3, False), (0.4, True), (0.7, False), (0.8, True), (1.0, False)]


def test_a_supervisor_that_wakes_late_lets_it_run_all_the_same() -> None:
    cycle = StallCycle(0.0, duration_ms=1000, stall_ms=300, run_ms=100)
    assert not cycle.turn(0.2)
    assert cycle.turn(5.0)
    assert not cycle.is_still
    assert cycle.is_over(5.0)


@pytest.mark.parametrize("text", ["", "1 2", "1 2 x", "0 1 1", "9 0 1", "9 1 0", "9 10001 1"])
def test_other_arguments_are_no_stalls(text: str) -> None:
    assert read_stalls(text) is None
