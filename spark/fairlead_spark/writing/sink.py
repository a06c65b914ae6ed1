"""`df.write` and `df.writeStream` with `format("fairlead")`: each task has an idempotent producer.

A write is at least once, as with Spark's Kafka sink: a task that is run again writes its rows
again. All rows of a task are acknowledged before its commit message goes to the driver. With
`exactlyOnce` it writes in a transaction, which the driver ends
(`exactly_once/exactly_once_sink.py`).

Rows stay columns of Arrow until they are batches of Kafka; there is no Python object for a row.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from fairlead_spark import limits
from fairlead_spark.cluster import Cluster, keep_cluster
from fairlead_spark.errors import SinkError
from fairlead_spark.options import SinkOptions
from fairlead_spark.writing.batch_sender import BatchSender
from fairlead_spark.writing.outgoing_batches import BatchShape, Producer, build_batches
from fairlead_spark.writing.record_encoding import RecordCells, as_binary, encode_headers
from fairlead_spark.writing.row_routing import RowRouter, TopicPartitions, split_by_topic
from fairlead_spark.writing.sink_columns import SinkColumns
from fairlead_spark.writing.sink_settings import read_producer_settings
from fairlead_spark.writing.sink_transaction import SinkTransaction
from fairlead_wire.record_batch import BATCH_HEADER_SIZE

if TYPE_CHECKING:
    from fairlead_spark.offsets import TopicPartition


@dataclass
class TaskWritten(WriterCommitMessage):
    """All rows of a task were acknowledged."""

    records: int


class RowWriter:
    """Writes one task's rows."""

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        cluster: Cluster,
        transaction: SinkTransaction | None = None,
    ) -> None:
        self._topic = options.topic
        self._columns = columns
        self._cluster = cluster
        self._settings = read_producer_settings(options.client)
        self._sender = BatchSender(
            cluster,
            request_bytes_max=self._settings.record_bytes_max,
            delivery_timeout_s=self._settings.delivery_timeout_s,
            transaction=transaction,
        )
        self._producer: Producer | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._topics: dict[str, TopicPartitions] = {}
        self._router = RowRouter(self._partitions_of)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskWritten:
        """Send all rows and wait until brokers have them; SinkError if one was refused."""
        records = 0
        try:
            for rows in gather(batches, limits.SINK_GATHER_BYTES):
                self._write(rows)
                records += rows.num_rows
                self._sender.send(until_bytes=self._settings.queue_bytes)
            self._sender.send(until_bytes=0)
        finally:
            self._sender.close()
        return TaskWritten(records)

    def _write(self, rows: pa.RecordBatch) -> None:
        columns = self._columns
        cells = RecordCells(
            as_binary(rows.column(columns.value)),
            None if columns.key is None else as_binary(rows.column(columns.key)),
            None if columns.headers is None else encode_headers(rows.column(columns.headers)),
        )
        partitions = None if columns.partition is None else rows.column(columns.partition)
        least = None if partitions is None else pc.min(partitions).as_py()
        if least is not None and least < 0:
            raise SinkError(f"a row has partition {least}: null leaves the choice to the key")
        if self._topic is not None or columns.topic is None:
            self._write_to(self._topic or "", cells, partitions)
            return
        by_topic = split_by_topic(rows.column(columns.topic))
        for topic, chosen in by_topic:
            if len(by_topic) == 1:
                self._write_to(topic, cells, partitions)
            else:
                some = None if partitions is None else partitions.take(pa.array(chosen))
                self._write_to(topic, cells.take(chosen), some)

    def _write_to(self, topic: str, cells: RecordCells, partitions: pa.Array | None) -> None:
        sizes = cells.sizes_max()
        chosen = self._router.route(topic, cells.keys, partitions, sizes)
        largest = int(sizes.argmax())
        size = int(sizes[largest]) + BATCH_HEADER_SIZE
        if size > self._settings.record_bytes_max:
            raise SinkError(
                f"a row cannot be written to {topic}-{chosen[largest]}: its record has {size} "
                f"bytes, and kafka.max.request.size is {self._settings.record_bytes_max}. Raise "
                "it, and max.message.bytes of the topic"
            )
        if self._producer is None:
            self._producer = self._sender.begin()
        bytes_max = self._sender.batch_bytes_max.get(topic, self._settings.batch_bytes_max)
        built = build_batches(
            topic,
            cells,
            chosen,
            producer=self._producer,
            sequences=self._sequences,
            shape=BatchShape(bytes_max, self._settings.codec),
            now_ms=time.time_ns() // 1_000_000,
        )
        for batch in built:
            self._sender.add(batch)
        self._sender.send()

    def _partitions_of(self, topic: str, least: int) -> TopicPartitions:
        """Return partitions, fresh at first: this worker's memory may be older than the task."""
        known = self._topics.get(topic)
        if known is None or known.total < least:
            known = self._topics[topic] = self._look_up(topic)
        return known

    def _look_up(self, topic: str) -> TopicPartitions:
        deadline: float | None = None
        while True:
            found = self._cluster.read_topics([topic], may_create=True).get(topic)
            if found is not None:
                available = [each for each, leader in found.leaders.items() if leader is not None]
                return TopicPartitions(len(found.leaders), sorted(available))
            now = time.monotonic()
            # From the first answer on: a slow broker may take longer for it than all the rest.
            deadline = now + limits.MISSING_TOPIC_S if deadline is None else deadline
            if now > deadline:
                raise SinkError(f"topic {topic} does not exist: create it")
            time.sleep(limits.RETRY_BACKOFF_S)


class FairleadBatchWriter(DataSourceArrowWriter):
    """For `df.write`."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; Spark calls this in a task."""
        return write_rows(self._options, self._columns, iterator)


class FairleadStreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream`."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; Spark calls this in a task."""
        return write_rows(self._options, self._columns, iterator)


def write_rows(
    options: SinkOptions, columns: SinkColumns, batches: Iterable[pa.RecordBatch]
) -> TaskWritten:
    """Write a task's rows over the connections that this worker keeps."""
    return RowWriter(options, columns, keep_cluster(options.client, is_sink=True)).write(batches)


def gather(batches: Iterable[pa.RecordBatch], bytes_wanted: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of about `bytes_wanted`, joined and split."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        for piece in _pieces(batch, bytes_wanted):
            held.append(piece)
            size += piece.nbytes
            if size >= bytes_wanted:
                yield from _joined(held)
                held, size = [], 0
    yield from _joined(held)


def _pieces(batch: pa.RecordBatch, bytes_wanted: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 0:
        return
    if batch.nbytes <= 2 * bytes_wanted or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle), bytes_wanted)
    yield from _pieces(batch.slice(middle), bytes_wanted)


def _joined(batches: list[Any]) -> Iterable[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    joined: Iterable[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
