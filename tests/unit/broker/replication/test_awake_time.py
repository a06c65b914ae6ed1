"""The time by which coordinators count: what a process stood still is no silence of its clients."""

from fairlead_broker.replication.wake_guard import PATIENCE_MS, READING_MS, WakeGuard

STOP_MS = 60_000
WOKEN_MS = 1_000 + STOP_MS


def woken() -> WakeGuard:
    """One that ran for a second, and then stood still."""
    guard = WakeGuard(gap_max_ms=1_500, monotonic_ms=0, wall_ms=0)
    guard.note_time(monotonic_ms=1_000, wall_ms=1_000)
    assert guard.awake_ms(1_100) == 1_100
    assert guard.note_time(monotonic_ms=WOKEN_MS, wall_ms=WOKEN_MS)
    return guard


def test_the_stop_does_not_count() -> None:
    guard = woken()
    assert guard.awake_ms(WOKEN_MS + 10) == 1_000
    assert guard.stands_still(WOKEN_MS + 10)


def test_it_goes_on_when_the_answer_is_here_and_clients_could_be_read() -> None:
    guard = woken()
    assert guard.confirmed(1, WOKEN_MS + 20)
    reading_end_ms = WOKEN_MS + 20 + READING_MS
    assert guard.awake_ms(reading_end_ms) == 1_000
    assert guard.stands_still(reading_end_ms - 1)
    assert not guard.stands_still(reading_end_ms)
    assert guard.awake_ms(reading_end_ms + 7) == 1_007


def test_without_an_answer_it_goes_on_all_the_same() -> None:
    guard = woken()
    opened_ms = WOKEN_MS + PATIENCE_MS
    assert not guard.is_closed(opened_ms)
    assert guard.awake_ms(opened_ms + READING_MS + 7) == 1_007


def test_stops_one_after_the_other_all_count_as_none() -> None:
    guard = woken()
    guard.note_time(monotonic_ms=2 * WOKEN_MS, wall_ms=2 * WOKEN_MS)
    assert not guard.confirmed(1, 2 * WOKEN_MS)
    assert guard.confirmed(2, 2 * WOKEN_MS)
    # And once more before it has gone on.
    guard.note_time(monotonic_ms=3 * WOKEN_MS, wall_ms=3 * WOKEN_MS)
    assert guard.confirmed(3, 3 * WOKEN_MS)
    assert guard.awake_ms(3 * WOKEN_MS + READING_MS + 7) == 1_007


def test_it_never_goes_back() -> None:
    guard = WakeGuard(gap_max_ms=1_500, monotonic_ms=0, wall_ms=0)
    shown, now_ms = [], 0
    for step, step_ms in enumerate([100, 200, 5_000, 50, 1_600, 400, 700, 700, 9_000, 1_000] * 5):
        now_ms += step_ms
        guard.note_time(monotonic_ms=now_ms, wall_ms=now_ms)
        if step % 3 == 0:
            guard.confirmed(guard.question, now_ms)
        guard.is_closed(now_ms)
        shown.append(guard.awake_ms(now_ms))
    assert shown == sorted(shown)
    assert 0 < shown[-1] < now_ms


def test_a_step_of_the_wall_clock_costs_no_time_but_that_of_the_question() -> None:
    guard = WakeGuard(gap_max_ms=1_500, monotonic_ms=0, wall_ms=0)
    assert guard.note_time(monotonic_ms=100, wall_ms=100_000)
    assert guard.confirmed(1, 120)
    assert guard.awake_ms(120 + READING_MS + 7) == 7
