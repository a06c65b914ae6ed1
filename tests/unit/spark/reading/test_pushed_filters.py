"""What filters of a batch read leave of the ranges, and which Spark has still to apply."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from fairlead_spark.offsets import TopicPartition
from fairlead_spark.reading.pushed_filters import Narrowing, take_filters

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
START, UNTIL = {A0: 10, A1: 20, B0: 0}, {A0: 100, A1: 200, B0: 50}
AT = datetime(2024, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
AT_MS = 1_704_067_200_001


def ranges(*filters: Filter) -> dict[TopicPartition, tuple[int, int]]:
    """Ranges that filters leave, none of which Spark has to look at again."""
    narrowing, kept = take_filters(filters)
    assert kept == []
    start, until = narrowing.narrow_start(START), narrowing.narrow_until(UNTIL)
    assert start.keys() == until.keys()
    return {each: (start[each], until[each]) for each in start}


def test_places() -> None:
    assert ranges(EqualTo(("partition",), 1)) == {A1: (20, 200)}
    assert ranges(In(("partition",), (0, 7))) == {A0: (10, 100), B0: (0, 50)}
    assert ranges(EqualTo(("topic",), "a"), In(("partition",), (0, 1))) == {
        A0: (10, 100),
        A1: (20, 200),
    }
    assert ranges(EqualTo(("partition",), 1), EqualTo(("partition",), 0)) == {}


def test_offsets() -> None:
    assert ranges(GreaterThanOrEqual(("offset",), 15), LessThan(("offset",), 60)) == {
        A0: (15, 60),
        A1: (20, 60),
        B0: (15, 50),
    }
    only_a0 = EqualTo(("topic",), "a"), EqualTo(("partition",), 0)
    assert ranges(*only_a0, EqualTo(("offset",), 30)) == {A0: (30, 31)}
    both = GreaterThan(("offset",), 30), LessThanOrEqual(("offset",), 40)
    assert ranges(*only_a0, *both) == {A0: (31, 41)}
    assert ranges(*only_a0, *both, GreaterThan(("offset",), 5), LessThan(("offset",), 90)) == {
        A0: (31, 41)
    }


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
def test_a_time_is_a_place_to_begin_and_spark_looks_at_each_record(kind: Any) -> None:
    since, partition = kind(("timestamp",), AT), EqualTo(("partition",), 1)
    narrowing, kept = take_filters([since, partition])
    assert narrowing.since_ms == AT_MS
    assert kept == [since]
    assert narrowing.narrow_start(START) == {A1: 20}


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("partition",), None),
        In(("partition",), (1, None)),
        EqualTo(("offset",), None),
        EqualTo(("headers", "partition"), 1),
        GreaterThan(("partition",), 1),
        LessThan(("timestamp",), AT),
        GreaterThan(("timestamp",), AT.replace(tzinfo=None)),
        GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)),
        In(("offset",), (1, 2)),
        IsNotNull(("key",)),
        Not(EqualTo(("partition",), 1)),
        Not(GreaterThan(("timestamp",), AT)),
    ],
)
def test_everything_else_stays_with_spark(given: Filter) -> None:
    assert take_filters([given]) == (Narrowing(), [given])
    offset = GreaterThan(("offset",), 3)
    narrowing, kept = take_filters([given, offset])
    assert (narrowing.least_offset, kept) == (4, [given])
