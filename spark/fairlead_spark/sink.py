"""`df.write` and `df.writeStream` with `format("fairlead")`: each task has an idempotent producer.

A write is at least once, as that of Spark's Kafka sink: a task that is run again writes its rows
again. What a task wrote is flushed before its commit message goes to the driver.

Columns are checked as a whole, and a row costs one call of librdkafka: that is most of its price.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.errors import OptionError, SinkError
from fairlead_spark.options import SinkOptions
from fairlead_spark.sink_columns import SinkColumns

# Java's names where librdkafka has others.
_RENAMED: Final = {"max.request.size": "message.max.bytes"}
# What librdkafka takes where nothing else is set.
_MESSAGE_BYTES_MAX: Final = 1_000_000
_FLUSH_STEP_S: Final = 1.0
_FULL_WAIT_S: Final = 0.1
_ANY_PARTITION: Final = -1


@dataclass
class TaskWritten(WriterCommitMessage):
    """Every one of a task's rows was acknowledged."""

    records: int


class _Refused:
    """Rows that no broker has acknowledged, and why the first few were not."""

    def __init__(self) -> None:
        self.count = 0
        self.reasons: list[str] = []

    def note(self, error: Any, message: Any) -> None:
        self.count += 1
        if len(self.reasons) < limits.ERRORS_SHOWN:
            partition = message.partition()
            where = message.topic() if partition < 0 else f"{message.topic()}-{partition}"
            self.reasons.append(f"{where}: {error.str()} ({error.name()})")


class RowWriter:
    """Writes one task's rows."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._topic = options.topic
        self._columns = columns
        self._refused = _Refused()
        self._producer = Producer(
            producer_settings(options.client)
            # Millions of successes are not worth a call each. What is called knows nothing of this
            # object: a worker is used again, and the producer of each task must end with it.
            | {"on_delivery": self._refused.note, "delivery.report.only.error": True}
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Sends all rows and waits until brokers have them; SinkError if one was refused."""
        records = 0
        try:
            for batch in batches:
                self._send(batch)
                records += batch.num_rows
                self._producer.poll(0)
                self._raise_failures()
            # Ends by itself: a record that nobody takes fails after delivery.timeout.ms.
            while self._producer.flush(_FLUSH_STEP_S):
                self._raise_failures()
            self._raise_failures()
        except BaseException:
            self._producer.purge()
            raise
        return TaskWritten(records)

    def _send(self, batch: pa.RecordBatch) -> None:
        columns = self._columns
        topics, partitions = self._topics(batch), self._partitions(batch)
        values, keys = _cells(batch, columns.value), _cells(batch, columns.key)
        if columns.headers is not None:
            headers = _cells(batch, columns.headers)
            rows = zip(topics, values, keys, partitions, headers, strict=True)
            for topic, value, key, partition, pairs in rows:
                self._send_one(topic, value, key, partition, pairs)
            return
        produce = self._producer.produce
        for topic, value, key, partition in zip(topics, values, keys, partitions, strict=True):
            try:
                produce(topic, value, key, partition)
            except (BufferError, KafkaException):
                self._send_one(topic, value, key, partition)

    def _send_one(
        self, topic: Any, value: Any, key: Any, partition: Any, headers: Any = None
    ) -> None:
        """Waits for room; SinkError for a row that can never be written."""
        named: dict[str, Any] = {}
        if headers:
            named["headers"] = [(each["key"], each["value"]) for each in headers]
        while True:
            try:
                self._producer.produce(topic, value, key, partition, **named)
            except BufferError:
                # The queue is full: brokers are slower than the query.
                self._producer.poll(_FULL_WAIT_S)
                self._raise_failures()
            except KafkaException as error:
                where = topic if partition == _ANY_PARTITION else f"{topic}-{partition}"
                raise SinkError(f"a row cannot be written to {where}: {error.args[0]}") from error
            else:
                return

    def _topics(self, batch: pa.RecordBatch) -> Iterable[Any]:
        if self._topic is not None or self._columns.topic is None:
            return repeat(self._topic, batch.num_rows)
        if batch.column(self._columns.topic).null_count:
            raise SinkError("a row has a null topic: fill the column, or set the option 'topic'")
        topics: list[str] = batch.column(self._columns.topic).to_pylist()
        return topics

    def _partitions(self, batch: pa.RecordBatch) -> Iterable[Any]:
        if self._columns.partition is None:
            return repeat(_ANY_PARTITION, batch.num_rows)
        column = batch.column(self._columns.partition)
        least = pc.min(column).as_py()
        if least is not None and least < 0:
            raise SinkError(f"a row has partition {least}: null leaves the choice to the key")
        partitions: list[int] = pc.fill_null(column, _ANY_PARTITION).to_pylist()
        return partitions

    def _raise_failures(self) -> None:
        if self._refused.count:
            raise SinkError(
                f"{self._refused.count} rows were not acknowledged: "
                f"{'; '.join(self._refused.reasons)}. The task may be run again: rows that were "
                "acknowledged are then written twice"
            )


class FairleadBatchWriter(DataSourceArrowWriter):
    """For `df.write`."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        return RowWriter(self._options, self._columns).write(iterator)


class FairleadStreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream`."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        return RowWriter(self._options, self._columns).write(iterator)


def producer_settings(client: ClientSettings) -> dict[str, Any]:
    """librdkafka's settings for a sink; OptionError for acks that can lose rows."""
    given = dict(client.producer)
    if given.pop("acks", "all") not in ("all", "-1"):
        raise OptionError("kafka.acks must be all: the sink's producer is idempotent")
    # A record that the queue can never hold would be waited for without an end.
    memory = max(
        _bytes(given.pop("buffer.memory", str(limits.SINK_QUEUE_BYTES)), "buffer.memory"),
        _bytes(given.get("max.request.size", str(_MESSAGE_BYTES_MAX)), "max.request.size"),
    )
    return {
        "bootstrap.servers": client.bootstrap_servers,
        "client.id": client.client_id,
        "enable.idempotence": True,
        # Partitions as Java's producer chooses them, so that writers of all kinds agree.
        "partitioner": "murmur2_random",
        "linger.ms": 20,
        "queue.buffering.max.messages": limits.SINK_QUEUE_RECORDS,
        "queue.buffering.max.kbytes": str(-(-memory // 1024)),
        **{_RENAMED.get(name, name): value for name, value in given.items()},
    }


def _bytes(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"kafka.{name} is '{text}', which is no number of bytes") from None


def _cells(batch: pa.RecordBatch, position: int | None) -> Iterable[Any]:
    if position is None:
        return repeat(None, batch.num_rows)
    column = batch.column(position)
    # Text is UTF-8 in Arrow and in the record: nothing has to become a string in between.
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.view(pa.large_binary())
    cells: list[Any] = column.to_pylist()
    return cells
