"""`exactlyOnce`: a sink whose tasks prepare transactions, and whose driver decides and ends them.

Spark calls `write` in each task, then, in a process of the driver, `commit` or `abort` with the
results of the tasks. `batch_decision.py` decides what follows from them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from fairlead_spark.cluster import keep_cluster
from fairlead_spark.exactly_once.batch_commit import BatchCommit, abort_leftovers
from fairlead_spark.exactly_once.batch_decision import (
    BatchWriter,
    abort_batch,
    commit_batch,
)
from fairlead_spark.exactly_once.decision_records import DecisionReplay
from fairlead_spark.exactly_once.task_transaction import (
    OverError,
    TaskTransaction,
    WriteName,
    name_write,
    read_attempt,
    read_batch_writer,
)
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.options import SinkOptions
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_spark.writing.sink import RowWriter
from fairlead_spark.writing.sink_columns import SinkColumns
from fairlead_spark.writing.sink_settings import read_producer_settings


@dataclass
class TaskPrepared(WriterCommitMessage):
    """A task's result for the driver. `transaction` is None if it had no rows.

    `is_decided`: the batch was decided before, and the task wrote nothing.
    """

    writer: BatchWriter
    records: int
    transaction: PreparedTransaction | None
    partitions: tuple[TopicPartition, ...]
    is_decided: bool
    replay: DecisionReplay


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """For `df.write`."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._name = name_write(options.txn_app_id, options.txn_version, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; Spark calls this in a task."""
        return prepare_rows(self._options, self._columns, iterator, self._name)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible."""
        commit_tasks(self._options, messages, is_remembered=self._options.txn_app_id is not None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the rows of all tasks."""
        if _tasks(messages):
            is_remembered = self._options.txn_app_id is not None
            abort_tasks(self._options, messages, is_remembered=is_remembered)
        else:
            # No task has reported, so nothing can have been decided.
            abort_leftovers(keep_cluster(self._options.client, is_sink=True), self._name)


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream`."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; Spark calls this in a task."""
        return prepare_rows(self._options, self._columns, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name.
        """Make the rows of all tasks visible."""
        commit_tasks(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the rows of all tasks."""
        abort_tasks(self._options, messages)


def prepare_rows(
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterable[pa.RecordBatch],
    name: WriteName | None = None,
) -> TaskPrepared:
    """Write a task's rows in a transaction, and leave it open."""
    writer = read_batch_writer(name)
    cluster = keep_cluster(options.client, is_sink=True)
    transaction = TaskTransaction(
        cluster,
        writer,
        read_attempt(),
        read_producer_settings(options.client).transaction_timeout_s,
    )
    is_needed = transaction.is_needed()
    records = 0
    if is_needed:
        try:
            records = RowWriter(options, columns, cluster, transaction).write(batches).records
        except OverError:
            transaction.abort()
            is_needed = False
        except BaseException:
            transaction.abort()
            raise
    return TaskPrepared(
        writer,
        records,
        transaction.prepared if is_needed else None,
        tuple(sorted(transaction.partitions)),
        not is_needed,
        # The driver does not need transactions that others have ended.
        replace(transaction.replay, ended=()),
    )


def commit_tasks(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    is_remembered: bool = True,
) -> None:
    """Decide, and end the tasks' prepared transactions.

    `is_remembered`: the write may be run again, so the log must keep that it is done.
    """
    tasks = _tasks(messages)
    prepared = [each.transaction for each in tasks if each.transaction is not None]
    is_decided = any(each.is_decided for each in tasks)
    if prepared or is_decided:
        driver = _driver(options, tasks, is_remembered=is_remembered)
        driver.run(
            commit_batch(
                tasks[0].writer,
                prepared,
                is_decided=is_decided,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        )


def abort_tasks(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    is_remembered: bool = True,
) -> None:
    """Abort the tasks' prepared transactions, unless the batch was decided."""
    tasks = _tasks(messages)
    if tasks:
        prepared = [each.transaction for each in tasks if each.transaction is not None]
        driver = _driver(options, tasks, is_remembered=is_remembered)
        driver.run(abort_batch(tasks[0].writer, prepared))


def _tasks(messages: Sequence[WriterCommitMessage | None]) -> list[TaskPrepared]:
    """Leave out the tasks that failed."""
    return [each for each in messages if isinstance(each, TaskPrepared)]


def _driver(
    options: SinkOptions, tasks: list[TaskPrepared], *, is_remembered: bool = True
) -> BatchCommit:
    return BatchCommit(
        keep_cluster(options.client, is_sink=True),
        tasks[0].writer,
        max((each.replay for each in tasks), key=lambda each: each.next_offset),
        is_remembered=is_remembered,
    )
