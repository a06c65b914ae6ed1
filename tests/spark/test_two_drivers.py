"""Two drivers of one query, each a Spark of its own: one is paused, the other one takes over.

A pause stops the driver's whole session of processes, as a frozen virtual machine does.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from needed_tools import need
from proofs import SPARK_DEATHS
from spark_driver import SparkDriver
from spark_source import DEADLINE_S, Topics
from waiting import wait_until

from fairlead_spark.group.group_membership import read_instance

pytestmark = SPARK_DEATHS.marks
PROGRAM = """
import sys
from pyspark.sql import SparkSession

bootstrap, checkpoint = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
rows = (
    spark.readStream.format("fairlead")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("kafka.group.id", "one-query")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 10)
    .load()
)
query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
query.trigger(processingTime="300 milliseconds").start().awaitTermination()
"""


@pytest.fixture
def start_driver(live_cluster: object, tmp_path: Path) -> Iterator[Callable[[str], SparkDriver]]:
    need("java")
    drivers: list[SparkDriver] = []
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def start(name: str) -> SparkDriver:
        folder = tmp_path / name
        bootstrap = live_cluster.bootstrap  # type: ignore[attr-defined]
        checkpoint = str(folder / "checkpoint")
        drivers.append(SparkDriver(program, bootstrap, checkpoint, folder=folder))
        return drivers[-1]

    yield start
    for each in drivers:
        each.end()


def test_a_driver_that_wakes_up_after_it_was_replaced_commits_nothing_and_fails(
    start_driver: Callable[[str], SparkDriver], topics: Topics
) -> None:
    topics.fill(topics.create("orders"), 0, 40)
    older = start_driver("older")
    wait_until(lambda: offset(topics) == 20, older.last_words, deadline_s=DEADLINE_S)
    (first,) = members(topics)
    older.signal_all(signal.SIGSTOP)
    topics.fill("orders", 40, 40)

    # It starts over: its first offsets are lower than those of the older one.
    newer = start_driver("newer")
    wait_until(
        lambda: members(topics) not in ([first], []), newer.last_words, deadline_s=DEADLINE_S
    )
    wait_until(lambda: offset(topics) == 40, newer.last_words, deadline_s=DEADLINE_S)
    (second,) = members(topics)
    older.signal_all(signal.SIGCONT)
    assert older.wait() != 0
    assert "FencedError: group one-query: another driver has started" in older.log()
    topics.fill("orders", 80, 20)
    wait_until(lambda: offset(topics) == 50, newer.last_words, deadline_s=DEADLINE_S)
    assert members(topics) == [second]
    instances = [read_instance(each) for each in (first, second)]
    assert None not in instances
    assert len({each.driver for each in instances if each}) == 2


def members(topics: Topics) -> list[str]:
    (future,) = topics.admin.describe_consumer_groups(["one-query"]).values()
    return [each.group_instance_id for each in future.result(60).members]


def offset(topics: Topics) -> int:
    """Of one partition of two."""
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "one-query"})
    try:
        (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=20)
        return int(found.offset)
    finally:
        consumer.close()
