"""A task's part of an exactly-once write: the batch that it belongs to, and its transaction.

Spark tells a task, but not the driver's side of a sink, its query and batch.
"""

import logging
import uuid
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pyspark import TaskContext

from fairlead_spark import limits
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster, PassingError
from fairlead_spark.errors import SinkError, SourceError, TakenOverError
from fairlead_spark.exactly_once.batch_decision import (
    BatchWriter,
    Decision,
    must_write,
    name_attempt,
)
from fairlead_spark.exactly_once.decision_log import DecisionLog
from fairlead_spark.exactly_once.decision_records import DecisionReplay
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_spark.transactions import TransactionClient

logger = logging.getLogger(__name__)

# Local properties that Spark sets (StreamExecution, MicroBatchExecution, SparkContext).
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"
_APPLICATION_START: Final = "spark.app.startTime"
_EXECUTION_ID: Final = "spark.sql.execution.id"

_replays: dict[tuple[str, str], DecisionReplay] = {}
"""The decisions that this worker has read: Spark reuses it for tasks, which continue from them."""


class WriteName(NamedTuple):
    """The name of a batch write: `txnAppId`, topic and `txnVersion`, or a unique name."""

    name: str
    batch: int
    run: str


def name_write(app_id: str | None, version: int | None, topic: str | None) -> WriteName:
    """Return the name of a batch write: one without `txnAppId` is never repeated by name.

    Delta counts versions of an application for each table: a batch for two topics is written twice
    with the same `txnAppId` and `txnVersion`. No topic has a slash or a star in its name; the star
    stands for a column topic.
    """
    run = uuid.uuid4().hex
    return WriteName(run if app_id is None else f"{app_id}/{topic or '*'}", version or 0, run)


def read_batch_writer(write: WriteName | None, context: Any = None) -> BatchWriter:
    """Return the batch of the running task; `write` is None in a stream."""
    context = context or TaskContext.get()
    if context is None:
        raise SinkError("exactlyOnce: this is no task of Spark")
    began = int(context.getLocalProperty(_APPLICATION_START) or 0)
    execution = int(context.getLocalProperty(_EXECUTION_ID) or 0)
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    run_id = context.getLocalProperty(_RUN_ID)
    if write is None:
        if query_id is None or batch_id is None or run_id is None:
            raise SinkError("exactlyOnce: Spark does not tell the task which batch it writes")
        return BatchWriter(query_id, int(batch_id), run_id, began, execution)
    # In foreachBatch a query's writes share the ids of its run, or the program's own job group.
    # Dots separate the parts of transactional ids.
    run = write.run if query_id is None or run_id is None else run_id.replace(".", "-")
    return BatchWriter(write.name, write.batch, run, began, execution, write.run)


class Attempt(NamedTuple):
    """One of a task's attempts. `id` is counted by the application, and no other has it."""

    partition: int
    id: int
    is_first: bool


def read_attempt(context: Any = None) -> Attempt:
    """Return the attempt of the running task.

    If Spark runs a stage again, it counts attempts from 0 again, and does not tell Python.
    """
    context = context or TaskContext.get()
    return Attempt(context.partitionId(), context.taskAttemptId(), context.attemptNumber() == 0)


class OverError(Exception):
    """The batch was decided while this task ran; Spark no longer waits for the task."""


class TaskTransaction:
    """One task's transaction; `prepared` once it has begun. For one thread."""

    def __init__(
        self, cluster: Cluster, writer: BatchWriter, attempt: Attempt, timeout_s: float
    ) -> None:
        self._cluster = cluster
        self._client = TransactionClient(cluster)
        self._writer = writer
        self._attempt = attempt
        self._timeout_s = timeout_s
        self.transactional_id = ""
        self.partitions: set[TopicPartition] = set()
        self.prepared: PreparedTransaction | None = None
        self._is_seen = False
        self.replay = DecisionReplay(writer.name)

    def is_needed(self) -> bool:
        """Tell whether the batch still has to be written: read before the task begins.

        Beginning would abort this id's earlier transaction, which may be decided.
        """
        key = (self._cluster.settings.bootstrap_servers, self._writer.name)
        self.replay = _replays.pop(key, self.replay)
        try:
            return must_write(self._writer, self._read(), self.replay.ended)
        finally:
            if len(_replays) >= limits.DECISION_LOGS_MAX:
                _replays.pop(next(iter(_replays)))
            _replays[key] = self.replay

    def begin(self) -> PreparedTransaction:
        """Take the id of this attempt, unless its batch is over: the first rows may come late.

        OverError: the batch was decided. SinkError: it was given up.
        """
        last = self._check_need()
        attempt = name_attempt(last, self._attempt.id, is_first=self._attempt.is_first)
        self.transactional_id = self._writer.task_transactional_id(self._attempt.partition, attempt)
        self.prepared = self._client.begin(self.transactional_id, self._timeout_s)
        return self.prepared

    def _read(self) -> Decision | None:
        log = DecisionLog(self._cluster, self.replay)
        decision = log.read()
        self.replay = log.replay.resumable()
        return decision

    def _check_need(self) -> Decision | None:
        """Return the last decision; an error means that the task's batch is over."""
        decision = self._read()
        if not must_write(self._writer, decision, self.replay.ended):
            raise OverError(f"batch {self._writer.batch} of {self._writer.name} was decided")
        return decision

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions before they are written to, with one request.

        Only the first partitions make the transaction visible to a driver. So the task then checks
        once more: a driver that gave its batch up before has not seen the transaction.
        PassingError if a retry may help; SinkError if brokers have ended the transaction.
        """
        new = [each for each in partitions if each not in self.partitions]
        if not new or self.prepared is None:
            return
        try:
            self._client.add_partitions(self.prepared, new)
        except TakenOverError as error:
            raise SinkError(
                f"{error} The task's transaction was ended: it took longer than "
                "kafka.transaction.timeout.ms, or another attempt or driver took its place"
            ) from error
        if not self._is_seen:
            self._check_need()
            self._is_seen = True
        self.partitions.update(new)

    def abort(self) -> None:
        """Abort it, if the task fails: readers need not wait until it times out."""
        if self.prepared is None:
            return
        try:
            self._client.end([self.prepared], is_commit=False)
        except (PassingError, SourceError, SinkError, *CONNECTION_ERRORS) as error:
            logger.warning("%s is left open: %s", self.transactional_id, error)
