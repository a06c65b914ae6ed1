"""Averages of what flows through a partition: of the last minutes, and of this leadership only."""

import pytest

from fairlead_broker.measures.traffic import HALF_LIFE_MS, KNOWN_AFTER_MS, PartitionFlow

STEP_MS = 10_000


def run(flow: PartitionFlow, begin_ms: int, steps: int, *, bytes_in: int, bytes_out: int) -> int:
    """Let so much flow in each of so many steps; the time at the end."""
    now_ms = begin_ms
    for _ in range(steps):
        now_ms += STEP_MS
        flow.bytes_in += bytes_in
        flow.bytes_out += bytes_out
        flow.sample(now_ms, is_leader=True)
    return now_ms


def test_a_rate_is_known_after_half_a_minute_and_right_from_then_on() -> None:
    flow = PartitionFlow()
    flow.bytes_in = 1 << 40
    flow.sample(0, is_leader=True)
    now_ms = run(flow, 0, KNOWN_AFTER_MS // STEP_MS - 1, bytes_in=1000, bytes_out=0)
    assert flow.rates is None
    run(flow, now_ms, 1, bytes_in=1000, bytes_out=0)
    assert flow.rates == pytest.approx((100.0, 0.0)), "what came before it was looked at is not in"


def test_half_of_it_is_forgotten_in_five_minutes() -> None:
    flow = PartitionFlow()
    flow.sample(0, is_leader=True)
    now_ms = run(flow, 0, 2000, bytes_in=0, bytes_out=8000)
    run(flow, now_ms, HALF_LIFE_MS // STEP_MS, bytes_in=500, bytes_out=0)
    assert flow.rates == pytest.approx((25.0, 400.0), rel=0.01)


def test_another_leadership_begins_anew() -> None:
    flow = PartitionFlow()
    flow.sample(0, is_leader=True)
    now_ms = run(flow, 0, 10, bytes_in=9000, bytes_out=9000)
    flow.sample(now_ms + STEP_MS, is_leader=False)
    assert flow.rates is None
    flow.sample(now_ms + 2 * STEP_MS, is_leader=True)
    run(flow, now_ms + 2 * STEP_MS, 3, bytes_in=10, bytes_out=20)
    assert flow.rates == pytest.approx((1.0, 2.0))


def test_a_clock_that_stands_changes_nothing() -> None:
    flow = PartitionFlow()
    flow.sample(5, is_leader=True)
    flow.bytes_in = 10
    flow.sample(5, is_leader=True)
    assert flow.rates is None
    run(flow, 5, 3, bytes_in=0, bytes_out=0)
    assert flow.rates == pytest.approx((10 / 30, 0.0), rel=0.05), "nothing was lost"
