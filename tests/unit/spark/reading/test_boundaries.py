"""Where reading begins and ends, with a cluster that answers from a table."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from fairlead_spark.cluster import Cluster, Topic
from fairlead_spark.errors import OptionError, SourceError
from fairlead_spark.offsets import EARLIEST, LATEST, TopicPartition
from fairlead_spark.options import SourceOptions, parse_source_options
from fairlead_spark.reading.boundaries import (
    check_start,
    find_partitions,
    narrow,
    read_latest,
    resolve_end,
    resolve_start,
)
from fairlead_spark.reading.pushed_filters import Narrowing

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
PARTITIONS = (A0, A1)


class LogsOfTwo:
    """Offsets 10 to 99 in both partitions; the record at offset n is of the time n."""

    end = 100

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, int]:
        end = 90 if is_committed else self.end
        known = {EARLIEST: 10, LATEST: end}
        return {
            each: known.get(time, -1 if time >= end else max(time, 10))
            for each, time in times.items()
        }


def options(**given: str) -> SourceOptions:
    needed = {"kafka.bootstrap.servers": "x:1", "subscribe": "a"}
    return parse_source_options(needed | given, is_stream=False)


def start(**given: str) -> Any:
    return resolve_start(LogsOfTwo(), options(**given), PARTITIONS)  # type: ignore[arg-type]


def end(**given: str) -> Any:
    logs, chosen = cast("Cluster", LogsOfTwo()), options(**given)
    return resolve_end(logs, chosen, PARTITIONS, read_latest(logs, chosen, PARTITIONS))


def test_sentinels_and_offsets() -> None:
    assert start() == {A0: 10, A1: 10}
    assert end() == {A0: 100, A1: 100}
    assert start(startingOffsets='{"a": {"0": 20, "1": -2}}') == {A0: 20, A1: 10}
    assert end(**{"kafka.isolation.level": "read_committed"}) == {A0: 90, A1: 90}


def test_times() -> None:
    assert start(startingTimestamp="42") == {A0: 42, A1: 42}
    assert end(endingTimestamp="42") == {A0: 42, A1: 42}
    assert end(endingTimestamp="500") == {A0: 100, A1: 100}
    with pytest.raises(SourceError, match="no record of a-0 is that young"):
        start(startingTimestamp="500")
    late = {"startingTimestamp": "500", "startingOffsetsByTimestampStrategy": "latest"}
    assert start(**late) == {A0: 100, A1: 100}


@pytest.mark.parametrize(
    "given",
    [
        {"endingOffsets": '{"a": {"0": -1, "1": -1}}'},
        {"endingTimestamp": "101"},
        {"endingOffsetsByTimestamp": '{"a": {"0": 101, "1": 500}}'},
    ],
)
def test_records_that_come_while_the_end_is_settled_are_no_error(given: dict[str, str]) -> None:
    """They lie behind the end that was looked up first: that one was called behind the log's."""
    logs: Any = LogsOfTwo()
    chosen = options(**given)
    latest = read_latest(logs, chosen, PARTITIONS)
    logs.end = 103
    assert resolve_end(logs, chosen, PARTITIONS, latest) == {A0: 100, A1: 100}


def test_nothing_is_asked_for_beyond_the_end() -> None:
    beyond = {"endingOffsets": '{"a": {"0": 50, "1": 500}}'}
    with pytest.raises(OptionError, match="a-1 up to offset 500, its log ends at 100"):
        end(**beyond)
    assert end(**beyond, failOnDataLoss="false") == {A0: 50, A1: 100}


def test_a_batch_does_not_begin_behind_the_end() -> None:
    latest = {A0: 100, A1: 100}
    for offset, is_wrong in ((100, False), (101, True)):
        given = {"startingOffsets": json.dumps({"a": {"0": 20, "1": offset}})}
        if is_wrong:
            with pytest.raises(OptionError, match="a-1 from offset 101, its log ends at 100"):
                check_start(options(**given), latest)
            given["failOnDataLoss"] = "false"
        check_start(options(**given), latest)
    check_start(options(startingOffsets='{"a": {"0": 5, "1": -2}}'), latest)


def test_an_offset_of_a_partition_that_is_not_read_is_named() -> None:
    given = options(startingOffsets='{"a": {"0": 20, "1": 20, "7": 5}}')
    check_start(given, {A0: 100, A1: 100})
    with pytest.raises(OptionError, match="names a-7, which the query does not read"):
        resolve_start(LogsOfTwo(), given, PARTITIONS)  # type: ignore[arg-type]


def test_what_is_named_must_exist() -> None:
    topics = {"a": Topic("a", bytes(16), {0: 1, 1: None}, {})}
    assert find_partitions(options().subscription, topics) == {A0, A1}
    with pytest.raises(OptionError, match="topic a does not exist"):
        find_partitions(options().subscription, {})
    assigned = parse_source_options(
        {"kafka.bootstrap.servers": "x:1", "assign": '{"a": [7]}'}, is_stream=False
    )
    with pytest.raises(OptionError, match="a-7, which does not exist"):
        find_partitions(assigned.subscription, topics)


@pytest.mark.parametrize(("since_ms", "first"), [(5, 30), (42, 42), (500, 80)])
def test_a_filter_by_time_moves_the_start_and_no_further_than_the_end(
    since_ms: int, first: int
) -> None:
    narrowing = Narrowing(places={"partition": frozenset({1})}, since_ms=since_ms)
    logs: Any = LogsOfTwo()
    found = narrow(logs, options(), narrowing, dict.fromkeys(PARTITIONS, 30), {A0: 80, A1: 80})
    assert found == ({A1: first}, {A1: 80})
