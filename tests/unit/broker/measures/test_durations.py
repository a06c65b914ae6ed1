"""Durations by powers of two: counted, recent ones told apart, quantiles read off."""

import math

from fairlead_broker.measures.durations import WINDOW_NS, Durations, RecentDurations, quantile_ns


def noted(*durations_ns: int) -> Durations:
    durations = Durations()
    for duration_ns in durations_ns:
        durations.note(duration_ns)
    return durations


def test_a_duration_counts_in_the_bucket_of_its_bit_length() -> None:
    durations = noted(0, 1, 1023, 1024, 2047)
    assert (durations.counts[0], durations.counts[1]) == (1, 1)
    assert (durations.counts[10], durations.counts[11]) == (1, 2)
    assert (durations.count, durations.total_ns) == (5, 4095)


def test_a_duration_of_years_has_a_bucket() -> None:
    assert noted((1 << 63) - 1).counts[63] == 1


def test_quantiles_lie_within_the_bucket_of_the_true_ones() -> None:
    values = [1000 * number for number in range(1, 1001)]
    counts = noted(*values).counts
    for fraction in (0.5, 0.95, 0.99, 0.999):
        true = values[int(fraction * len(values)) - 1]
        assert true / 2 <= quantile_ns(counts, fraction) <= true * 2


def test_nothing_has_no_quantile() -> None:
    assert math.isnan(quantile_ns([0] * 64, 0.5))


def test_recent_means_since_the_older_of_two_generations() -> None:
    recent = RecentDurations()
    durations = noted(100)
    recent.turn(WINDOW_NS, {"a": durations.counts})
    assert sum(recent.since("a", durations.counts)) == 1
    durations.note(100)
    recent.turn(WINDOW_NS + 1, {"a": durations.counts})
    assert sum(recent.since("a", durations.counts)) == 2, "too early for a new generation"
    recent.turn(2 * WINDOW_NS, {"a": durations.counts})
    assert sum(recent.since("a", durations.counts)) == 1
    recent.turn(3 * WINDOW_NS, {"a": durations.counts})
    assert sum(recent.since("a", durations.counts)) == 0
