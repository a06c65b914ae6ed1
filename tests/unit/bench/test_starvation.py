"""Whether a fencing is explained by a machine that gave processes no processor."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from processor_wait import Stopwatch
from starvation import LOG_TIME_SIZE, SILENCE_S, STARVED_S, StarvationWatch
from waiting import wait_until

from fairlead_controller.decisions.events import FenceReason


def line(at_s: float, reason: FenceReason) -> str:
    """As the controller writes it."""
    told = f"{datetime.fromtimestamp(at_s):%Y-%m-%d %H:%M:%S,%f}"[:LOG_TIME_SIZE]
    return f"{told} INFO fairlead_controller.controller: broker 1 is fenced: {reason}; 2 partitions"


@pytest.fixture
def spinners() -> Iterator[list[int]]:
    """Processes that share one processor and never rest: each waits while the other runs."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    for each in started:
        os.sched_setaffinity(each.pid, {min(os.sched_getaffinity(0))})
    yield [each.pid for each in started]
    for each in started:
        each.kill()
        each.wait()


def test_silence_of_who_had_no_processor_is_explained_and_nothing_else(
    spinners: list[int],
) -> None:
    with StarvationWatch(lambda: spinners) as watch:
        began_s = time.time()
        wait_until(lambda: watch.starved_s(began_s, time.time()) > 2 * STARVED_S)
        now_s = time.time()
        # The window of a silence: no longer ago than that.
        noted_s = min(now_s, began_s + SILENCE_S)
        wait_until(lambda: watch.starved_s(noted_s - SILENCE_S, noted_s) >= STARVED_S)
        silent = line(noted_s, FenceReason.SESSION_EXPIRED)
        refused = line(noted_s, FenceReason.CONNECTION_REFUSED)
        before = line(began_s - 60, FenceReason.SESSION_EXPIRED)
        assert watch.judged([silent, refused, before]) == [refused, before]


def test_silence_of_who_had_one_is_not() -> None:
    rests = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with StarvationWatch(lambda: [rests.pid]) as watch:
            wait_until(lambda: len(watch.samples(rests.pid)) > 2)
            silent = line(time.time() + SILENCE_S, FenceReason.SESSION_EXPIRED)
            assert watch.judged([silent]) == [silent]
    finally:
        rests.kill()
        rests.wait()


def test_a_stopwatch_leaves_out_the_waits_of_each_and_the_longest_of_those_beside(
    spinners: list[int],
) -> None:
    first, second = spinners
    began_s = time.monotonic()
    one, two, beside = Stopwatch(first), Stopwatch(first, second), Stopwatch(beside=spinners)
    wait_until(lambda: min(each.left_out_s() for each in (one, two, beside)) > 0.2)
    assert two.left_out_s() > one.left_out_s()
    assert two.left_out_s() > beside.left_out_s()
    assert one.elapsed_s() < time.monotonic() - began_s - 0.2
