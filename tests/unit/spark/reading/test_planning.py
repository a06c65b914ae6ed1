"""Sizes of batches and of tasks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_spark.offsets import TopicPartition
from fairlead_spark.reading.planning import (
    OffsetRange,
    build_ranges,
    cap_positions,
    count_new,
    find_regressions,
    limit_positions,
    split_ranges,
)

A, B, C = (TopicPartition("a", partition) for partition in range(3))


def test_only_partitions_with_something_to_read_get_a_task() -> None:
    ranges = build_ranges({A: 0, B: 5, C: 9}, {A: 3, B: 5, C: 4}, topic_ids={})
    assert [(each.partition, each.start, each.until) for each in ranges] == [(0, 0, 3)]


def test_a_range_is_cut_by_size() -> None:
    pieces = split_ranges([OffsetRange("a", 0, 10, 35)], min_partitions=None, max_records=10)
    assert [(each.start, each.until) for each in pieces] == [(10, 18), (18, 26), (26, 35)]


def test_big_partitions_get_more_of_the_tasks_that_are_wanted() -> None:
    ranges = [OffsetRange("a", 0, 0, 900), OffsetRange("a", 1, 0, 100)]
    pieces = split_ranges(ranges, min_partitions=10, max_records=None)
    assert [each.partition for each in pieces].count(0) == 9
    assert [each.partition for each in pieces].count(1) == 1


def test_a_task_is_never_empty() -> None:
    pieces = split_ranges([OffsetRange("a", 0, 0, 3)], min_partitions=10, max_records=None)
    assert [each.size for each in pieces] == [1, 1, 1]
    assert split_ranges([], min_partitions=3, max_records=5) == []


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 500)), min_size=1, max_size=5),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 1000),
)
def test_pieces_cover_their_ranges_exactly(
    sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [
        OffsetRange("a", index, start, start + size) for index, (start, size) in enumerate(sizes)
    ]
    pieces = split_ranges(ranges, min_partitions=min_partitions, max_records=max_records)
    covered = [(each.partition, o) for each in pieces for o in range(each.start, each.until)]
    assert covered == [
        (each.partition, o) for each in ranges for o in range(each.start, each.until)
    ]
    assert all(each.size <= (max_records or each.size) for each in pieces)


def test_a_limit_is_shared_out_by_backlog() -> None:
    ends = limit_positions({A: 0, B: 10, C: 7}, {A: 900, B: 110, C: 7}, records_max=100)
    assert ends == {A: 90, B: 20, C: 7}


def test_a_small_backlog_moves_all_the_same() -> None:
    ends = limit_positions({A: 0, B: 0}, {A: 1_000_000, B: 1}, records_max=10)
    assert ends[B] == 1


def test_a_limit_above_the_backlog_is_none() -> None:
    assert limit_positions({A: 0}, {A: 5}, records_max=5) == {A: 5}


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 2000), min_size=1),
    st.integers(1, 500),
)
def test_limited_batches_reach_the_end(latest: dict[TopicPartition, int], limit: int) -> None:
    positions = dict.fromkeys(latest, 0)
    for _ in range(sum(latest.values()) + 1):
        ends = limit_positions(positions, latest, records_max=limit)
        assert sum(ends.values()) - sum(positions.values()) <= limit + len(latest)
        if ends == positions:
            break
        positions = ends
    assert positions == latest


def test_nothing_is_read_beyond_a_target() -> None:
    found = cap_positions({A: 10, B: 3, C: 1}, {A: 4, B: 9}, start={A: 0, C: 0}, read={A: 0})
    assert found == {A: 4, B: 3}


def test_a_partition_that_a_target_left_out_is_not_forgotten() -> None:
    """The broker that told the target did not know it yet: as a new one it would be read twice."""
    found = cap_positions({A: 10, B: 8}, {A: 10}, start={A: 6, B: 5}, read={A: 6, B: 5})
    assert found == {A: 10, B: 5}


def test_a_target_that_was_told_too_low_takes_nothing_back() -> None:
    """It was asked of a new leader; when the end is asked for again, all is there."""
    assert cap_positions({A: 10, B: 8}, {A: 4, B: 4}, start={A: 6, B: 2}, read={A: 6, B: 2}) == {
        A: 6,
        B: 4,
    }
    # The log itself lost its end, and the query goes on all the same.
    assert cap_positions({A: 3}, {A: 3}, start={A: 6}, read={A: 6}) == {A: 3}


def test_new_offsets_and_regressions() -> None:
    assert count_new({A: 1, B: 9}, {A: 4, B: 5}) == 3
    assert find_regressions({A: 1, B: 9}, {A: 4, B: 5}) == [B]
