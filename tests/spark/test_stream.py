"""Streaming reads: batches, restarts, limits, topics that change, and the group's offsets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from spark_source import Source, Topics, finish, numbers
from waiting import wait_until

from fairlead_spark.reading.stream_reader import FairleadStreamReader
from fairlead_spark.source import FairleadDataSource

Collect = Callable[..., tuple[list[int], list[dict[str, Any]]]]


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Offsets of a group, as any tool sees them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        return {each.partition: each.offset for each in consumer.committed(wanted, timeout=60)}
    finally:
        consumer.close()


def test_limited_batches_end_exactly_at_their_target_and_a_restart_goes_on(
    source: Source, topics: Topics, collect: Collect
) -> None:
    name = topics.create("limited")
    topics.fill(name, 0, 1000)
    seen, batches = collect(
        source.stream(subscribe=name, maxOffsetsPerTrigger=400, **{"kafka.group.id": "limited-job"})
    )
    assert seen == list(range(1000))
    assert [batch["numInputRows"] for batch in batches] == [400, 400, 200]
    topics.fill(name, 1000, 50)
    seen, batches = collect(source.stream(subscribe=name, **{"kafka.group.id": "limited-job"}))
    assert seen == list(range(1050))
    assert [batch["numInputRows"] for batch in batches] == [50]
    # The lag of a query that has read everything is 0.
    wait_until(
        lambda: committed(topics.bootstrap, "limited-job", name, 2) == {0: 525, 1: 525},
    )


def test_records_that_come_while_it_runs_and_the_lag_they_leave(
    source: Source, topics: Topics, tmp_path: Path
) -> None:
    name = topics.create("running")
    topics.fill(name, 0, 10)
    query = (
        source.stream(subscribe=name, **{"kafka.group.id": "running-job"})
        .writeStream.format("memory")
        .queryName("running")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        rows = source.spark.table("running")
        wait_until(lambda: rows.count() == 10)
        topics.fill(name, 10, 10)
        wait_until(lambda: rows.count() == 20)
        # Spark never reports the last batch as done: the next look for new records does.
        wait_until(lambda: committed(topics.bootstrap, "running-job", name, 2) == {0: 10, 1: 10})
        # Partitions that are added are read from their first record on.
        topics.grow(name, 3)
        topics.fill(name, 20, 9, partitions=3)
        wait_until(lambda: rows.count() == 29)
        assert numbers(rows) == list(range(29))
        # A batch writes its rows first, and is reported after that.
        wait_until(lambda: '"2"' in query.lastProgress["sources"][0]["endOffset"])
    finally:
        query.stop()


def test_too_few_records_wait(source: Source, topics: Topics, tmp_path: Path) -> None:
    name = topics.create("few")
    topics.fill(name, 0, 5)
    query = (
        source.stream(subscribe=name, minOffsetsPerTrigger=10, maxTriggerDelay="10m")
        .writeStream.format("memory")
        .queryName("few")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        # The first batch of a run waits for nothing, as in Spark's Kafka source.
        wait_until(lambda: source.spark.table("few").count() == 5)
        topics.fill(name, 5, 7)
        wait_until(lambda: query.status["message"].startswith("Waiting"))
        assert source.spark.table("few").count() == 5
        topics.fill(name, 12, 3)
        wait_until(lambda: source.spark.table("few").count() == 15)

        def batches() -> list[int]:
            rows = (each["numInputRows"] for each in query.recentProgress)
            return [count for count in rows if count]

        # A batch writes its rows first, and is reported after that.
        wait_until(lambda: sum(batches()) >= 15)
        assert batches() == [5, 10]
    finally:
        query.stop()


def test_a_leader_dies_in_the_middle_of_a_batch(
    spark: Any, make_cluster: Callable[..., Any], collect: Collect
) -> None:
    cluster = make_cluster(brokers=3, is_patient=True)
    topics = Topics(cluster.bootstrap)
    name = topics.create("survivors", 3, copies=3)
    topics.fill(name, 0, 6000, partitions=3)
    source = Source(spark, cluster.bootstrap, "fairlead")
    rows = source.stream(subscribe=name, maxOffsetsPerTrigger=1500)
    killed: list[int] = []

    def kill_once(batch: Any, number: int) -> None:
        if number == 1 and not killed:
            leader = topics.admin.list_topics(name, timeout=60).topics[name].partitions[0].leader
            cluster.brokers[leader].kill()
            killed.append(leader)
        seen.extend(numbers(batch))

    seen: list[int] = []
    query = rows.writeStream.foreachBatch(kill_once).trigger(availableNow=True)
    checkpoint = cluster.directory / "checkpoint"
    finish(query.option("checkpointLocation", str(checkpoint)).start())
    assert killed
    assert sorted(seen) == list(range(6000))


def busy_source() -> type[FairleadDataSource]:
    """A source whose topic gets its first record as soon as a query knows where it begins.

    Local, so that Spark's workers get its code.
    """

    class BusyReader(FairleadStreamReader):
        def initialOffset(self) -> dict[str, Any]:
            # A class that cannot be sent to a worker.
            from confluent_kafka import Producer

            is_first = self._initial is None
            found = super().initialOffset()
            servers = self._options.client.bootstrap_servers
            (topic,) = self._options.subscription.topics
            if is_first and found[topic] == {"0": 0}:
                producer = Producer({"bootstrap.servers": servers})
                producer.produce(topic, b"value 0")
                assert producer.flush(60) == 0
            return found

    class BusySource(FairleadDataSource):
        @classmethod
        def name(cls) -> str:
            return "busy"

        def streamReader(self, schema: Any) -> Any:
            reader = super().streamReader(schema)
            reader.__class__ = BusyReader
            return reader

    return BusySource


def test_a_query_from_the_latest_record_on_that_dies_in_its_first_batch_loses_no_record(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    """The batch is planned, and ends where its offsets say. It began where the log ended by then.

    That is further on when it is run again: the batch was empty.
    """
    spark.dataSource.register(busy_source())
    name = topics.create("from-latest", 1)
    rows = Source(spark, topics.bootstrap, "busy").stream(subscribe=name, startingOffsets="latest")
    seen: list[int] = []
    deaths = ["the driver dies"]

    def work(batch: Any, _number: int) -> None:
        if deaths:
            raise RuntimeError(deaths.pop())
        seen.extend(numbers(batch))

    def run() -> None:
        query = rows.writeStream.foreachBatch(work)
        started = query.option("checkpointLocation", str(tmp_path)).start()
        try:
            started.processAllAvailable()
        finally:
            started.stop()

    with pytest.raises(Exception, match="the driver dies"):
        run()
    topics.fill(name, 1, 1, partitions=1)
    run()
    run()
    assert seen == [0, 1]
