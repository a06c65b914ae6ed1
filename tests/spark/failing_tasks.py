"""A driver of its own whose tasks fail, as when an executor dies: it runs example jobs.

    python failing_tasks.py MARKS JOB ARGUMENT [JOB ARGUMENT ...]

Each task meets two faults, once each: the Python worker that reads its range is killed when half of
the first batch has gone to the JVM, and a function for a partition raises when all that it does is
done. The next attempt goes on. Each fault leaves a file in the folder MARKS.
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from fairlead_spark.reading.batch_reader import FairleadBatchReader
from fairlead_spark.reading.stream_reader import FairleadStreamReader
from fairlead_spark.source import FairleadDataSource

ATTEMPTS = 4
ROWS_A_PIECE = 50
MARKS, *JOBS = sys.argv[1:]


def mark(fault: str) -> bool:
    """Note that this task is about to fail, unless it has failed like this before."""
    context = TaskContext.get()
    assert context is not None
    try:
        file = Path(MARKS) / f"{fault}-{context.stageId()}-{context.partitionId()}"
        file.open("x").close()
    except FileExistsError:
        return False
    return True


def die_in_the_middle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Go on as the reader does, but end the process once in the middle of its first batch."""
    for number, batch in enumerate(batches):
        middle = batch.num_rows // 2
        for start in range(0, batch.num_rows, ROWS_A_PIECE):
            if number == 0 and start >= middle and mark("killed"):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(start, ROWS_A_PIECE)


class DyingBatchReader(FairleadBatchReader):
    """Reads as the source does."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return die_in_the_middle(super().read(partition))


class DyingStreamReader(FairleadStreamReader):
    """Reads as the source does."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return die_in_the_middle(super().read(partition))


class DyingSource(FairleadDataSource):
    """Takes the place of `fairlead` in this session."""

    def reader(self, schema: Any) -> DataSourceReader:
        reader = super().reader(schema)
        reader.__class__ = DyingBatchReader
        return reader

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        reader.__class__ = DyingStreamReader
        return reader


def fail_when_done(work: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a function that does the work, and raises behind it once."""

    def run(rows: Iterator[Any]) -> None:
        work(rows)
        if mark("failed"):
            raise RuntimeError("the task fails once")

    return run


def main() -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.session.timeZone": "UTC",
    }
    # `spark.task.maxFailures` means nothing to a local master.
    builder = SparkSession.builder.master(f"local[2, {ATTEMPTS}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(DyingSource)
    frames = type(spark.range(0))
    for_each = frames.foreachPartition
    frames.foreachPartition = lambda rows, work: for_each(rows, fail_when_done(work))
    for job, argument in zip(JOBS[::2], JOBS[1::2], strict=True):
        sys.argv[:] = [job, argument]
        runpy.run_path(job, run_name="__main__")
    spark.stop()


main()
