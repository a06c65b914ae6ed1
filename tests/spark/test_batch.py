"""Batch reads: what is between two boundaries, with every column."""

from datetime import datetime
from typing import Any

import pytest
from spark_source import Source, Topics, numbers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def orders(topics: Topics) -> str:
    """100 records of each codec over two partitions: offsets 0 to 249 in each."""
    name = topics.create("orders")
    for index, codec in enumerate(CODECS):
        topics.fill(name, 100 * index, 100, compression_type=codec)
    return name


def test_every_record_of_every_codec(source: Source, orders: str) -> None:
    assert numbers(source.read(subscribe=orders)) == list(range(500))


def test_columns_and_types_are_those_of_sparks_kafka_source(source: Source, orders: str) -> None:
    rows = source.read(subscribe=orders, includeHeaders="true")
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    row, other = rows.where("partition = 1 AND offset IN (1, 3)").orderBy("offset").collect()
    assert (row.key, row.value, row.topic, row.timestampType) == (
        b"key 3",
        b"value 3",
        orders,
        0,
    )
    assert [(each.key, each.value) for each in row.headers] == [("number", b"3"), ("none", None)]
    assert other.headers is None
    seconds = rows.where("partition = 1 AND offset = 1").selectExpr("unix_millis(timestamp)")
    assert seconds.first()[0] == START_MS + 3
    assert isinstance(row.timestamp, datetime)
    assert rows.where("key IS NULL").count() == 100


def test_times_are_the_same_where_a_session_means_another_type_by_timestamp(
    source: Source, orders: str
) -> None:
    setting = "spark.sql.timestampType"
    source.spark.conf.set(setting, "TIMESTAMP_NTZ")
    try:
        rows = source.read(subscribe=orders).where("partition = 1 AND offset = 1")
        assert dict(rows.dtypes)["timestamp"] == "timestamp"
        assert rows.selectExpr("unix_millis(timestamp)").first()[0] == START_MS + 3
    finally:
        source.spark.conf.unset(setting)


def test_offsets_for_each_partition(source: Source, orders: str) -> None:
    rows = source.read(
        subscribe=orders,
        startingOffsets='{"orders": {"0": 10, "1": -2}}',
        endingOffsets='{"orders": {"0": -1, "1": 5}}',
    )
    assert numbers(rows) == sorted([*range(20, 500, 2), *range(1, 10, 2)])


def test_a_schema_of_the_users_is_refused(source: Source, orders: str) -> None:
    rows = source.spark.read.format("fairlead").schema("value binary, key binary")
    with pytest.raises(Exception, match="the columns are always key binary, value binary"):
        rows.options(**source.options({"subscribe": orders})).load().count()


def test_by_time(source: Source, orders: str) -> None:
    rows = source.read(
        subscribe=orders, startingTimestamp=START_MS + 100, endingTimestamp=START_MS + 200
    )
    assert numbers(rows) == list(range(100, 200))
    times = '{"orders": {"0": %d, "1": %d}}'
    rows = source.read(
        subscribe=orders,
        startingOffsetsByTimestamp=times % (START_MS + 490, START_MS + 480),
    )
    assert numbers(rows) == sorted([*range(490, 500, 2), *range(481, 500, 2)])


def test_a_time_after_the_last_record(source: Source, orders: str) -> None:
    too_late = {"subscribe": orders, "startingTimestamp": START_MS + 10_000}
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy to latest"):
        source.read(**too_late).count()
    assert source.read(**too_late, startingOffsetsByTimestampStrategy="latest").count() == 0


def test_a_partition_is_cut_into_tasks(source: Source, orders: str) -> None:
    rows = source.read(subscribe=orders, maxRecordsPerPartition=60)
    assert rows.rdd.getNumPartitions() == 10
    assert numbers(rows) == list(range(500))
    assert source.read(subscribe=orders, minPartitions=7).rdd.getNumPartitions() in (6, 7, 8)


def test_pattern_and_assignment(source: Source, topics: Topics, orders: str) -> None:
    topics.fill(topics.create("orders-late"), 500, 10)
    topics.create("unrelated")
    assert numbers(source.read(subscribePattern="orders.*")) == list(range(510))
    assert numbers(source.read(assign='{"orders": [1]}')) == list(range(1, 500, 2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic does not exist"),
        ({"assign": '{"orders": [9]}'}, "orders-9, which does not exist"),
        ({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1}}'}, "about orders-1"),
        ({"subscribe": "orders", "failOnDataLos": "no"}, "did you mean 'failOnDataLoss'"),
    ],
)
def test_what_is_wrong_is_named(
    source: Source, orders: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        source.read(**options).count()


def test_records_that_are_gone(source: Source, topics: Topics) -> None:
    from confluent_kafka import TopicPartition

    name = topics.create("short", 1)
    topics.fill(name, 0, 100, partitions=1)
    for future in topics.admin.delete_records([TopicPartition(name, 0, 40)]).values():
        future.result()
    asked = {"subscribe": name, "startingOffsets": '{"short": {"0": 10}}'}
    with pytest.raises(Exception, match=r"offsets 10 to 39 of short-0 are no longer there"):
        source.read(**asked).count()
    assert numbers(source.read(**asked, failOnDataLoss="false")) == list(range(40, 100))
    assert numbers(source.read(subscribe=name)) == list(range(40, 100))
    beyond = '{"short": {"0": 500}}'
    with pytest.raises(Exception, match="short-0 up to offset 500, its log ends at 100"):
        source.read(subscribe=name, endingOffsets=beyond).count()


PUSHED = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.parametrize(
    ("condition", "found", "tasks"),
    [
        ("partition = 1 AND offset >= 10 AND offset < 20", range(21, 41, 2), 1),
        ("partition IN (0, 5) AND value IS NOT NULL", range(0, 500, 2), 1),
        (f"timestamp >= timestamp_millis({START_MS + 470})", range(470, 500), 2),
        (f"timestamp >= timestamp_millis({START_MS + 9000})", (), 1),
        ("partition = 7", (), 1),
    ],
)
def test_filters_narrow_what_is_read_and_change_no_answer(
    source: Source, orders: str, condition: str, found: Any, tasks: int
) -> None:
    for is_pushed in ("true", "false"):
        source.spark.conf.set(PUSHED, is_pushed)
        try:
            rows = source.read(subscribe=orders, pushFilters=is_pushed).where(condition)
            assert numbers(rows) == list(found)
            if is_pushed == "true":
                assert rows.rdd.getNumPartitions() == tasks
        finally:
            source.spark.conf.unset(PUSHED)


def test_times_are_moments_whatever_the_zone_of_the_session(source: Source, orders: str) -> None:
    zone = "spark.sql.session.timeZone"
    before = source.spark.conf.get(zone)
    source.spark.conf.set(zone, "America/New_York")
    try:
        rows = source.read(subscribe=orders).where("partition = 0 AND offset = 0")
        seen = rows.selectExpr("unix_millis(timestamp)", "CAST(timestamp AS STRING)").first()
    finally:
        source.spark.conf.set(zone, before)
    assert tuple(seen) == (START_MS, "2023-11-14 17:13:20")
