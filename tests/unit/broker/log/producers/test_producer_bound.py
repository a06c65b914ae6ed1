"""What each log may keep where all of a broker remember too many producers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.log.producers.producer_bound import idle_producers_a_log


@pytest.mark.parametrize(
    ("counts", "kept", "bound"),
    [
        ([], 10, 0),
        ([3, 4], 10, 4),
        ([5, 5], 10, 5),
        ([2, 3, 100], 15, 10),
        ([100, 2, 100, 3], 15, 5),
        ([7, 7], 0, 0),
        ([7, 7], -5, 0),
    ],
)
def test_the_largest_logs_give_most(counts: list[int], kept: int, bound: int) -> None:
    assert idle_producers_a_log(counts, kept) == bound


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 200))
def test_all_together_keep_as_many_as_they_may(counts: list[int], kept: int) -> None:
    bound = idle_producers_a_log(counts, kept)
    assert sum(min(count, bound) for count in counts) <= kept
    if max(counts) > bound:
        assert sum(min(count, bound + 1) for count in counts) > kept
