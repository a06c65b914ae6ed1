"""Topics for tests of Spark, and a source that reads and writes them in one format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DEADLINE_S = 120


class Topics:
    """Creates topics on a cluster, and writes records to them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def create(self, name: str, partitions: int = 2, *, copies: int = 1, **config: str) -> str:
        # Records may have old timestamps, and must not expire.
        settings = {"retention.ms": "-1"}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, copies, config=settings)
        for future in self.admin.create_topics([topic]).values():
            future.result(DEADLINE_S)
        return name

    def delete(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result(DEADLINE_S)

    def create_when_gone(self, name: str, partitions: int = 2) -> None:
        """Create a topic again; brokers hear of its deletion a moment after the answer."""
        wait_until(
            lambda: name not in self.admin.list_topics(timeout=60).topics, f"{name} is still there"
        )
        self.create(name, partitions)

    def grow(self, name: str, partitions: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(name, partitions)]).values():
            future.result(DEADLINE_S)

    def fill(
        self,
        name: str,
        first: int,
        count: int,
        *,
        partitions: int = 2,
        timestamp_ms: int | None = None,
        **settings: Any,
    ) -> None:
        """Write records `first`, `first + 1`, … to the partitions in turn, all acknowledged."""
        failed: list[Any] = []
        named = {key.replace("_", "."): value for key, value in settings.items()}
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "log_level": 2} | named
        )
        for number in range(first, first + count):
            producer.produce(
                name,
                b"value %d" % number,
                None if number % 5 == 0 else b"key %d" % number,
                partition=number % partitions,
                timestamp=(timestamp_ms or 1_700_000_000_000) + number,
                headers=[("number", b"%d" % number), ("none", None)] if number % 3 == 0 else None,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        assert failed == []


class Source:
    """Reads and writes one cluster by one format."""

    def __init__(self, spark: SparkSession, bootstrap: str, format_name: str) -> None:
        self.spark = spark
        self.format = format_name
        self._bootstrap = bootstrap

    def options(self, options: dict[str, Any]) -> dict[str, str]:
        given = {name: str(value) for name, value in options.items()}
        return {"kafka.bootstrap.servers": self._bootstrap} | given

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format(self.format).options(**self.options(options)).load()

    def stream(self, **options: Any) -> DataFrame:
        chosen = self.options({"startingOffsets": "earliest"} | options)
        return self.spark.readStream.format(self.format).options(**chosen).load()

    def write(self, rows: DataFrame, **options: Any) -> None:
        writer = rows.write.format(self.format).options(**self.options(options))
        writer.mode("append").save()

    def run(self, rows: DataFrame, checkpoint: Path, **options: Any) -> StreamingQuery:
        """Write all rows of a stream that are there now to a topic, and end."""
        chosen = self.options(options | {"checkpointLocation": checkpoint})
        query = rows.writeStream.format(self.format).options(**chosen)
        return finish(query.trigger(availableNow=True).start())


def finish(query: StreamingQuery) -> StreamingQuery:
    """Wait for a query that ends by itself; raise its error if it failed."""
    try:
        assert query.awaitTermination(DEADLINE_S), "the query does not end"
    finally:
        query.stop()
    return query


def numbers(rows: DataFrame) -> list[int]:
    """Return the numbers in the values, sorted."""
    cells = rows.selectExpr("CAST(substring(CAST(value AS STRING), 7) AS INT) AS n").collect()
    return sorted(row.n for row in cells)
