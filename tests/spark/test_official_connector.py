"""Spark's own connector, `format("kafka")`, works unchanged against Fairlead's brokers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from needed_tools import missing
from spark_source import Source, Topics, finish, numbers

Collect = Callable[..., tuple[list[int], list[dict[str, Any]]]]


@pytest.fixture(autouse=True)
def _connector(connector_jars: list[Path] | str) -> None:
    if isinstance(connector_jars, str):
        missing(connector_jars)


@pytest.fixture
def connector(spark: Any, live_cluster: Any) -> Source:
    return Source(spark, live_cluster.bootstrap, "kafka")


def test_both_formats_read_the_same_rows(connector: Source, source: Source, topics: Topics) -> None:
    name = topics.create("same", 3)
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        topics.fill(name, 40 * index, 40, partitions=3, compression_type=codec)
    theirs = connector.read(subscribe=name, includeHeaders="true")
    ours = source.read(subscribe=name, includeHeaders="true")
    assert [(each.name, each.dataType) for each in ours.schema] == [
        (each.name, each.dataType) for each in theirs.schema
    ]
    assert sorted(theirs.collect(), key=str) == sorted(ours.collect(), key=str)


def test_batch_by_pattern_time_and_in_more_tasks(connector: Source, topics: Topics) -> None:
    topics.fill(topics.create("official-one"), 0, 100)
    topics.fill(topics.create("official-two"), 100, 100)
    assert numbers(connector.read(subscribePattern="official-.*")) == list(range(200))
    late = connector.read(subscribe="official-one", startingTimestamp=1_700_000_000_050)
    assert numbers(late) == list(range(50, 100))
    split = connector.read(subscribe="official-one", minPartitions=6)
    assert split.rdd.getNumPartitions() == 6
    assert numbers(split) == list(range(100))


def test_stream_with_a_checkpoint_and_limits(
    connector: Source, topics: Topics, collect: Collect
) -> None:
    name = topics.create("official-stream")
    topics.fill(name, 0, 1000)
    options = {"subscribe": name, "kafka.isolation.level": "read_committed"}
    seen, batches = collect(connector.stream(**options, maxOffsetsPerTrigger=400))
    assert seen == list(range(1000))
    assert [batch["numInputRows"] for batch in batches] == [400, 400, 200]
    topics.grow(name, 3)
    topics.fill(name, 1000, 30, partitions=3)
    assert collect(connector.stream(**options))[0] == list(range(1030))


def test_sink(connector: Source, topics: Topics, tmp_path: Path) -> None:
    origin, copy = topics.create("official-origin"), topics.create("official-copy")
    topics.fill(origin, 0, 300)
    connector.run(connector.stream(subscribe=origin), tmp_path / "c", topic=copy)
    assert numbers(connector.read(subscribe=copy)) == list(range(300))


def test_a_leader_dies_during_a_query(
    spark: Any, make_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster = make_cluster(brokers=3, is_patient=True)
    topics = Topics(cluster.bootstrap)
    name = topics.create("official-survivors", 3, copies=3)
    topics.fill(name, 0, 6000, partitions=3)
    rows = Source(spark, cluster.bootstrap, "kafka").stream(
        subscribe=name, maxOffsetsPerTrigger=1500
    )
    seen: list[int] = []
    killed: list[int] = []

    def kill_once(batch: Any, number: int) -> None:
        if number == 1 and not killed:
            leader = topics.admin.list_topics(name, timeout=60).topics[name].partitions[0].leader
            cluster.brokers[leader].kill()
            killed.append(leader)
        seen.extend(numbers(batch))

    query = rows.writeStream.foreachBatch(kill_once).trigger(availableNow=True)
    finish(query.option("checkpointLocation", str(tmp_path)).start())
    assert killed
    assert sorted(seen) == list(range(6000))
