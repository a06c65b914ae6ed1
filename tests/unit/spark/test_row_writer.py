"""Rows of a task on their way to a producer that notes what it is given."""

import gc
import weakref
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from fairlead_spark import sink
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.errors import SinkError
from fairlead_spark.options import SinkOptions
from fairlead_spark.sink import RowWriter
from fairlead_spark.sink_columns import SinkColumns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class NotedProducer:
    """Refuses a row as long as there are `refusals`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.rows: list[tuple[Any, ...]] = []
        self.refusals: list[Exception] = []
        self.polled = 0

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, headers: Any = None
    ) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.rows.append((topic, key, value, partition, headers))

    def poll(self, _timeout_s: float) -> int:
        self.polled += 1
        return 0

    def flush(self, _timeout_s: float) -> int:
        return 0

    def purge(self) -> None:
        self.rows.clear()


@pytest.fixture(autouse=True)
def _noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "Producer", NotedProducer)


def writer(to: str | None = "out", **columns: int) -> tuple[RowWriter, NotedProducer]:
    made = RowWriter(SinkOptions(ClientSettings("a:1"), to), SinkColumns(**columns))
    return made, made._producer


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_text_and_nulls_become_bytes_and_nulls() -> None:
    rows, producer = writer(value=0, key=1)
    given = batch(value=["ä", None], key=pa.array([None, "k"], pa.large_string()))
    assert rows.write(iter([given, given])).records == 4
    assert (
        producer.rows
        == [
            ("out", None, "ä".encode(), -1, None),
            ("out", b"k", None, -1, None),
        ]
        * 2
    )


def test_a_row_says_where_it_goes() -> None:
    rows, producer = writer(None, value=0, topic=1, partition=2)
    rows.write(
        iter([batch(value=[b"1", b"2"], topic=["a", "b"], partition=pa.array([3, None], "int32"))])
    )
    assert producer.rows == [("a", None, b"1", 3, None), ("b", None, b"2", -1, None)]


def test_headers_of_some_rows() -> None:
    rows, producer = writer(value=0, headers=1)
    pairs = pa.array([[{"key": "h", "value": None}], None, []], HEADERS)
    rows.write(iter([batch(value=[b"1", b"2", b"3"], headers=pairs)]))
    assert [row[4] for row in producer.rows] == [[("h", None)], None, None]


@pytest.mark.parametrize("has_headers", [False, True])
def test_a_full_queue_is_waited_for_and_no_row_is_written_twice(has_headers: bool) -> None:
    columns = {"value": 0, "headers": 1} if has_headers else {"value": 0}
    rows, producer = writer(**columns)
    producer.refusals = [BufferError(), BufferError(), BufferError()]
    rows.write(iter([batch(value=[b"1", b"2"], headers=pa.nulls(2, HEADERS))]))
    assert [row[2] for row in producer.rows] == [b"1", b"2"]
    assert producer.polled >= 2


def test_a_row_that_is_refused_names_its_partition() -> None:
    rows, producer = writer(value=0, partition=1)
    refusal = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
    producer.refusals = [refusal, refusal]
    with pytest.raises(SinkError, match="out-7"):
        rows.write(iter([batch(value=[b"1"], partition=pa.array([7], "int32"))]))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": pa.array(["a", None])}, "a row has a null topic"),
        ({"partition": pa.array([1, -3], "int32")}, "a row has partition -3"),
    ],
)
def test_a_batch_with_a_row_that_goes_nowhere_is_not_begun(columns: Any, said: str) -> None:
    (name,) = columns
    rows, producer = writer(None if name == "topic" else "out", value=0, **{name: 1})
    with pytest.raises(SinkError, match=said):
        rows.write(iter([batch(value=[b"1", b"2"], **columns)]))
    assert producer.rows == []


class RefusedRow:
    """What librdkafka tells of a row that was not acknowledged."""

    def topic(self) -> str:
        return "out"

    def partition(self) -> int:
        return 4


def test_rows_that_were_not_acknowledged_fail_the_task_and_the_first_few_are_named() -> None:
    rows, producer = writer(value=0)
    error = KafkaError(KafkaError._MSG_TIMED_OUT, "nobody took it")
    for _ in range(9):
        producer.settings["on_delivery"](error, RefusedRow())
    with pytest.raises(
        SinkError, match="9 rows were not acknowledged: out-4: nobody took it"
    ) as said:
        rows.write(iter([batch(value=[b"1"])]))
    assert str(said.value).count("nobody took it") == 5


def test_the_producer_ends_with_its_task() -> None:
    """Spark uses a Python worker for thousands of tasks: threads and connections may not pile up
    until Python happens to look for cycles."""
    gc.disable()
    try:
        rows, producer = writer(value=0)
        ended = weakref.ref(producer)
        rows.write(iter([batch(value=[b"1"])]))
        del rows, producer
        assert ended() is None
    finally:
        gc.enable()
