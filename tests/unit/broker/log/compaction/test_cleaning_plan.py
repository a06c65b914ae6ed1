"""Which log is compacted, how far, and what becomes of its segments."""

from typing import Any

import pytest

from fairlead_broker.log.compaction.cleaning_plan import (
    LogFacts,
    SegmentFacts,
    first_dirty_offset,
    group_segments,
    must_roll,
    plan_cleaning,
)
from fairlead_model.configs.log_config import LogConfig

NOW_MS = 1_000_000


def segment(
    base: int, next_base: int, *, size: int = 100, newest_ms: int = 0, index_size: int = 8
) -> SegmentFacts:
    return SegmentFacts(base, size, index_size, 12, newest_ms, next_base)


SEGMENTS = [segment(0, 10), segment(10, 20), segment(20, 30), segment(30, 40)]

FAR_APART = [segment(0, 5), segment(5, 2**31), segment(2**31, 2**31 + 1)]


def facts(**changes: Any) -> LogFacts:
    known: dict[str, Any] = {
        "segments": SEGMENTS,
        "log_start_offset": 0,
        "first_dirty_offset": 20,
        "stable_offset": 100,
        "high_watermark": 100,
        "recovery_point": 100,
    }
    return LogFacts(**known | changes)


def planned(config: dict[str, Any] | None = None, **changes: Any) -> tuple[int, float] | None:
    plan = plan_cleaning(facts(**changes), LogConfig(**config or {}), NOW_MS)
    return None if plan is None else (plan.segments[-1].next_base_offset, plan.dirty_ratio)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (40, 0.5)),
        ({"first_dirty_offset": 30}, None),
        ({"first_dirty_offset": 40}, None),
        ({"first_dirty_offset": 0}, (40, 1.0)),
        ({"stable_offset": 39}, None),
        ({"stable_offset": 39, "first_dirty_offset": 10}, (30, 2 / 3)),
        ({"recovery_point": 5}, None),
        ({"log_start_offset": 35}, None),
        ({"segments": []}, None),
        ({"first_dirty_offset": 40, "last_horizon_ms": NOW_MS}, (40, 0.0)),
        ({"first_dirty_offset": 40, "last_horizon_ms": NOW_MS + 1}, None),
        # Part of a segment is clean: all of it counts, because all of it is read.
        ({"first_dirty_offset": 25}, (40, 0.5)),
    ],
)
def test_dirty_enough_and_how_far(
    changes: dict[str, Any], expected: tuple[int, float] | None
) -> None:
    assert planned(**changes) == expected


def test_young_records_are_left_alone() -> None:
    segments = [*SEGMENTS[:3], segment(30, 40, newest_ms=NOW_MS - 5)]
    lag = {"min_compaction_lag_ms": 6, "min_cleanable_dirty_ratio": 0.1}
    assert planned(lag, segments=segments) == (30, 1 / 3)
    assert planned(lag | {"min_compaction_lag_ms": 5}, segments=segments) == (40, 0.5)


def test_what_has_waited_too_long_is_due_whatever_its_share() -> None:
    lag = {"max_compaction_lag_ms": 1_000, "min_cleanable_dirty_ratio": 1.0}
    assert planned(lag, oldest_dirty_ms=NOW_MS - 1_000) is None
    assert planned(lag, oldest_dirty_ms=NOW_MS - 1_001) == (40, 0.5)
    assert planned(lag, oldest_dirty_ms=NOW_MS - 1_001, first_dirty_offset=40) is None
    config = LogConfig(max_compaction_lag_ms=1_000)
    assert not must_roll(NOW_MS - 1_000, config, NOW_MS, is_empty=False)
    assert must_roll(NOW_MS - 1_001, config, NOW_MS, is_empty=False)
    assert not must_roll(0, config, NOW_MS, is_empty=True)
    assert not must_roll(0, LogConfig(), NOW_MS, is_empty=False)


@pytest.mark.parametrize(
    ("segments", "limits", "expected"),
    [
        (SEGMENTS, (400, 1_000), [[0, 10, 20, 30]]),
        (SEGMENTS, (399, 1_000), [[0, 10, 20], [30]]),
        (SEGMENTS, (99, 1_000), [[0], [10], [20], [30]]),
        (SEGMENTS, (400, 24), [[0, 10], [20, 30]]),
        (
            [segment(0, 5), segment(5, 2**31), segment(2**31, 2**31 + 1)],
            (400, 99),
            [[0, 5], [2**31]],
        ),
        ([], (1, 1), []),
    ],
)
def test_neighbours_become_one_segment_as_far_as_they_fit(
    segments: list[SegmentFacts], limits: tuple[int, int], expected: list[list[int]]
) -> None:
    groups = group_segments(segments, segment_bytes=limits[0], segment_index_bytes=limits[1])
    assert [[each.base_offset for each in group] for group in groups] == expected


def test_a_mark_of_another_log_is_not_believed() -> None:
    assert first_dirty_offset(5, 0, 10) == 5
    assert first_dirty_offset(11, 0, 10) == 0
    assert first_dirty_offset(5, 7, 10) == 7
