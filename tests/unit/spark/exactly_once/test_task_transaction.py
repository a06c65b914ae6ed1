"""Which batch a task writes, as Spark tells it."""

from typing import Any

import pytest

from fairlead_spark.errors import SinkError
from fairlead_spark.exactly_once.batch_decision import BatchWriter, is_of_write
from fairlead_spark.exactly_once.task_transaction import (
    Attempt,
    name_write,
    read_attempt,
    read_batch_writer,
)


class Context:
    """What a task of Spark knows."""

    def __init__(self, attempt: int = 0, **properties: str) -> None:
        self._attempt = attempt
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name.replace(".", "_"))

    def attemptNumber(self) -> int:
        return self._attempt

    def taskAttemptId(self) -> int:
        return 99

    def partitionId(self) -> int:
        return 3


STREAM: dict[str, Any] = {
    "sql_streaming_queryId": "q",
    "streaming_sql_batchId": "7",
    "spark_jobGroup_id": "r",
    "spark_app_startTime": "1000",
    "spark_sql_execution_id": "12",
}


def test_a_stream_has_the_names_that_spark_gives_it() -> None:
    assert read_batch_writer(None, Context(**STREAM)) == BatchWriter("q", 7, "r", 1000, 12)


def test_a_batch_write_has_the_users_name_and_in_foreach_batch_the_ids_of_the_run() -> None:
    write = name_write("nightly", 20, "rows")
    alone = Context(spark_app_startTime="1000", spark_jobGroup_id="unrelated")
    assert read_batch_writer(write, alone) == BatchWriter(
        "nightly/rows", 20, write.run, 1000, 0, write.run
    )
    assert read_batch_writer(write, Context(**STREAM)) == BatchWriter(
        "nightly/rows", 20, "r", 1000, 12, write.run
    )


def test_what_tasks_leave_open_is_found_where_the_program_has_a_job_group_of_its_own() -> None:
    """In foreachBatch it stands in place of the run, and may hold dots."""
    for write in (name_write("nightly", 20, "rows"), name_write(None, None, "rows")):
        context = Context(**STREAM | {"spark_jobGroup_id": "etl.v2"})
        writer = read_batch_writer(write, context)
        left_open = writer.task_transactional_id(3, "0-1")
        assert writer.may_abort(left_open, ())
        assert is_of_write(left_open, writer.run)


def test_a_batch_write_without_a_name_has_one_of_its_own() -> None:
    first, second = name_write(None, None, "rows"), name_write(None, None, "rows")
    assert first.name != second.name
    assert first.batch == 0


def test_versions_are_counted_for_each_topic() -> None:
    written = [("a", "b"), ("a", "c"), ("a", None), ("a/b", None), ("a/b", "b")]
    assert len({name_write(app_id, 1, topic).name for app_id, topic in written}) == len(written)


def test_attempts_of_a_partition_are_told_apart() -> None:
    assert read_attempt(Context()) == Attempt(3, 99, is_first=True)
    assert read_attempt(Context(attempt=1)) == Attempt(3, 99, is_first=False)


def test_a_stream_that_does_not_say_its_batch_is_an_error() -> None:
    with pytest.raises(SinkError, match="does not tell the task which batch"):
        read_batch_writer(None, Context(spark_app_startTime="1000"))
