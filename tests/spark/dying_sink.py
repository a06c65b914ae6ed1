"""A driver of its own that writes a topic to another one exactly once, and dies as it is told.

    python dying_sink.py BOOTSTRAP ORIGIN TARGET CHECKPOINT MARKS FAULT ...

Each fault befalls it once, and leaves a file in the folder MARKS:

* `task-in-the-middle`, `task-behind-its-rows`: a task's process is killed,
* `kill-STEP`, `stop-STEP`: all processes are killed, or stopped, before a step of the commit, which
  is counted from 0; `kill-in-the-end`: between the first transaction's end and the next one's.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from fairlead_spark.exactly_once.batch_commit import BatchCommit
from fairlead_spark.exactly_once.batch_decision import Step
from fairlead_spark.exactly_once.exactly_once_sink import ExactlyOnceStreamWriter
from fairlead_spark.source import FairleadDataSource
from fairlead_spark.transactions import TransactionClient

BOOTSTRAP, ORIGIN, TARGET, CHECKPOINT, MARKS, *FAULTS = sys.argv[1:]


def is_due(marks: str, faults: Sequence[str], fault: str) -> bool:
    """Tell whether this is to happen now, and note it."""
    if fault not in faults:
        return False
    try:
        (Path(marks) / fault).open("x").close()
    except FileExistsError:
        return False
    return True


def signal_all(number: int) -> None:
    """The whole driver: Python, the JVM and what it started; this process last."""
    session = os.getsid(0)
    processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    for process in sorted(processes, key=lambda each: each == os.getpid()):
        try:
            if os.getsid(process) == session:
                os.kill(process, number)
        except ProcessLookupError:
            continue


class DyingWriter(ExactlyOnceStreamWriter):
    """Writes as the sink does."""

    marks = MARKS
    faults = FAULTS

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(self._die_in_the_middle(iterator))
        if is_due(self.marks, self.faults, "task-behind-its-rows"):
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    def _die_in_the_middle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number and is_due(self.marks, self.faults, "task-in-the-middle"):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        count = 0
        marks, faults = self.marks, self.faults
        carry_out, end = BatchCommit._carry_out, TransactionClient.end

        def dying_carry_out(driver: BatchCommit, step: Step) -> Any:
            nonlocal count
            for name, number in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)):
                if is_due(marks, faults, f"{name}-{count}"):
                    signal_all(number)
            count += 1
            return carry_out(driver, step)

        def dying_end(client: TransactionClient, ends: Any, *, is_commit: bool) -> Any:
            if len(ends) > 1 and is_due(marks, faults, "kill-in-the-end"):
                end(client, ends[:1], is_commit=is_commit)
                signal_all(signal.SIGKILL)
            return end(client, ends, is_commit=is_commit)

        # Two of the product's methods do otherwise for as long as this commit lasts.
        self._replace(dying_carry_out, dying_end)
        try:
            super().commit(messages, batchId)
        finally:
            self._replace(carry_out, end)

    @staticmethod
    def _replace(carry_out: Callable[..., Any], end: Callable[..., Any]) -> None:
        setattr(BatchCommit, "_carry_out", carry_out)  # noqa: B010
        setattr(TransactionClient, "end", end)  # noqa: B010


class DyingSink(FairleadDataSource):
    """Takes the place of `fairlead` in this session."""

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = DyingWriter
        return writer


def main() -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        "spark.sql.streaming.minBatchesToRetain": "10",
    }
    # `spark.task.maxFailures` means nothing to a local master.
    builder = SparkSession.builder.master("local[2, 4]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(DyingSink)
    rows = (
        spark.readStream.format("fairlead")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ORIGIN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 600)
        .load()
    )
    query = (
        rows.selectExpr("key", "concat('done ', CAST(value AS STRING)) AS value")
        .writeStream.format("fairlead")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("exactlyOnce", "true")
        .option("topic", TARGET)
        .option("checkpointLocation", CHECKPOINT)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


main()
