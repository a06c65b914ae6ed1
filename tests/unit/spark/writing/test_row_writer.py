"""Rows of a task on their way into the logs of brokers that fail."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from fake_produce import LOST_BEFORE, LOST_BEHIND, FakeCluster, Fault

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import PassingError, Topic
from fairlead_spark.errors import SinkError
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.options import SinkOptions
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_spark.writing.sink import RowWriter, gather
from fairlead_spark.writing.sink_columns import SinkColumns
from fairlead_wire.errors import ErrorCode
from fairlead_wire.murmur2 import partition_for_key
from fairlead_wire.record_batch import BatchHeader, decode_batch_header

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RETRY_BACKOFF_S", 0.001)
    monkeypatch.setattr(limits, "SINK_WAIT_S", 0.005)


@pytest.fixture
def clusters() -> Iterator[list[FakeCluster]]:
    made: list[FakeCluster] = []
    yield made
    for each in made:
        each.close()


def write(
    cluster: Any, *batches: pa.RecordBatch, to: str | None = "t", given: Any = (), **columns: int
) -> int:
    options = SinkOptions(ClientSettings("a:1", producer=tuple(given)), to)
    return RowWriter(options, SinkColumns(**columns), cluster).write(iter(batches)).records


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_keys_choose_partitions_as_in_java(clusters: list[FakeCluster]) -> None:
    clusters.append(cluster := FakeCluster())
    keys = [b"key %d" % number for number in range(100)]
    assert write(cluster, batch(value=keys, key=keys), value=0, key=1) == 100
    for partition in range(4):
        assert cluster.values(partition) == [
            k for k in keys if partition_for_key(k, 4) == partition
        ]


def test_rows_without_a_key_are_spread_in_runs(clusters: list[FakeCluster]) -> None:
    clusters.append(cluster := FakeCluster())
    values = [b"%d" % number + b"." * 1000 for number in range(400)]
    write(cluster, batch(value=values), value=0)
    assert {len(cluster.values(each)) > 50 for each in range(4)} == {True}
    assert sorted(value for p in range(4) for value in cluster.values(p) if value) == sorted(values)
    assert len(cluster.requests) <= 4


def test_a_row_says_where_it_goes(clusters: list[FakeCluster]) -> None:
    clusters.append(cluster := FakeCluster(topics=("a", "b")))
    rows = batch(
        value=[b"1", b"2", b"3"],
        topic=["a", "b", "a"],
        partition=pa.array([3, None, 1], "int32"),
        key=[b"k", b"k", b"k"],
    )
    write(cluster, rows, to=None, value=0, topic=1, partition=2, key=3)
    assert cluster.values(3, "a") == [b"1"]
    assert cluster.values(1, "a") == [b"3"]
    assert cluster.values(partition_for_key(b"k", 4), "b") == [b"2"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": pa.array(["t", None])}, "a row has a null topic"),
        ({"partition": pa.array([1, -3], "int32")}, "a row has partition -3"),
        ({"partition": pa.array([1, 4], "int32")}, "written to t-4: the topic has 4 partitions"),
        ({"key": pa.array([None, b"k" * 2**20])}, "kafka.max.request.size is 1048576"),
        ({"headers": pa.array([None, [None]], HEADERS)}, "has no key"),
    ],
)
def test_a_batch_with_a_row_that_goes_nowhere_is_not_begun(
    columns: Any, said: str, clusters: list[FakeCluster]
) -> None:
    (name,) = columns
    clusters.append(cluster := FakeCluster())
    with pytest.raises(SinkError, match=said):
        write(
            cluster,
            batch(value=[b"1", b"2"], **columns),
            to=None if name == "topic" else "t",
            value=0,
            **{name: 1},
        )
    assert cluster.requests == []


def test_partitions_that_were_added_are_known_when_a_row_names_one(
    clusters: list[FakeCluster],
) -> None:
    clusters.append(cluster := FakeCluster(2))

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(value=[b"x" * limits.SINK_GATHER_BYTES], partition=pa.array([0], "int32"))
        cluster.partitions["t"] = 8
        yield batch(value=[b"new"], partition=pa.array([7], "int32"))

    write(cluster, *rows(), given=[("max.request.size", "9000000")], value=0, partition=1)
    assert cluster.values(7) == [b"new"]


def test_a_topic_that_does_not_exist(
    clusters: list[FakeCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MISSING_TOPIC_S", 0.01)
    clusters.append(cluster := FakeCluster())
    with pytest.raises(SinkError, match="topic nowhere does not exist: create it"):
        write(cluster, batch(value=[b"1"]), to="nowhere", value=0)


def test_a_topic_that_a_broker_makes_is_looked_for_again_if_the_first_answer_comes_late(
    clusters: list[FakeCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker had no processor, and had not heard of the topic yet when it went on."""

    class LateCluster(FakeCluster):
        def read_topics(self, names: list[str], *, may_create: bool = False) -> dict[str, Topic]:
            found = super().read_topics(names, may_create=may_create)
            if not found:
                self.partitions["made"] = 1
                time.sleep(1.2 * limits.MISSING_TOPIC_S)
            return found

    monkeypatch.setattr(limits, "MISSING_TOPIC_S", 1.0)
    clusters.append(cluster := LateCluster())
    assert write(cluster, batch(value=[b"1"]), to="made", value=0) == 1


def test_a_task_without_rows_asks_nothing() -> None:
    cluster = FakeCluster()
    assert write(cluster, batch(value=pa.array([], pa.binary())), value=0) == 0
    assert cluster.producers == 0


@pytest.mark.parametrize("seed", range(12))
def test_every_row_once_and_in_order_whatever_fails(seed: int, clusters: list[FakeCluster]) -> None:
    rng = random.Random(seed)
    faults: list[Fault] = [
        LOST_BEFORE,
        LOST_BEHIND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        *[None] * 4,
    ]
    clusters.append(cluster := FakeCluster(fault=lambda _where, _attempt: rng.choice(faults)))
    cluster.leaderless = 3
    partitions = [rng.randrange(4) for _ in range(600)]
    values = [b"%d" % number for number in range(600)]
    rows = batch(value=values, partition=pa.array(partitions, "int32"))
    # Ten records a batch, and a queue that is often full.
    given = [("batch.size", "330"), ("max.request.size", "700"), ("buffer.memory", "2000")]
    batches = [rows.slice(first, 50) for first in range(0, 600, 50)]
    monkey = pytest.MonkeyPatch()
    monkey.setattr(limits, "SINK_GATHER_BYTES", 100)
    try:
        assert write(cluster, *batches, given=given, value=0, partition=1) == 600
    finally:
        monkey.undo()
    for partition in range(4):
        assert cluster.values(partition) == [
            value for value, at in zip(values, partitions, strict=True) if at == partition
        ]
    assert len(cluster.requests) > 60


def test_a_broker_that_takes_less_gets_smaller_batches(clusters: list[FakeCluster]) -> None:
    clusters.append(cluster := FakeCluster(1, batch_bytes_max=900))
    values = [b"%03d" % number for number in range(1000)]
    write(cluster, batch(value=values), value=0)
    assert cluster.values(0) == values


def test_one_record_that_is_too_large_for_its_topic(clusters: list[FakeCluster]) -> None:
    clusters.append(cluster := FakeCluster(1, batch_bytes_max=100))
    with pytest.raises(SinkError, match="written to t-0: broker 0 answers MESSAGE_TOO_LARGE"):
        write(cluster, batch(value=[b"x" * 200]), value=0)


def test_a_batch_that_is_too_large_is_cut_although_its_first_attempt_had_no_answer(
    clusters: list[FakeCluster],
) -> None:
    def fault(_where: TopicPartition, attempt: int) -> Fault:
        return LOST_BEFORE if attempt == 1 else None

    clusters.append(cluster := FakeCluster(1, fault=fault, batch_bytes_max=900))
    values = [b"%03d" % number for number in range(1000)]
    write(cluster, batch(value=values), value=0)
    assert cluster.values(0) == values


def test_a_half_of_a_batch_that_was_written_is_refused(clusters: list[FakeCluster]) -> None:
    """It is no repetition of the whole. The topic takes less since the first attempt."""

    def fault(_where: TopicPartition, attempt: int) -> Fault:
        return (LOST_BEHIND, ErrorCode.MESSAGE_TOO_LARGE, None)[min(attempt - 1, 2)]

    clusters.append(cluster := FakeCluster(1, fault=fault))
    with pytest.raises(SinkError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        write(cluster, batch(value=[b"1", b"2"]), value=0)
    assert cluster.values(0) == [b"1", b"2"]


def test_an_error_that_does_not_pass_names_its_place(clusters: list[FakeCluster]) -> None:
    clusters.append(
        cluster := FakeCluster(
            fault=lambda where, _: (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED if where.partition == 3 else None
            )
        )
    )
    rows = batch(value=[b"1", b"2"], partition=pa.array([1, 3], "int32"))
    with pytest.raises(SinkError, match="1 rows cannot be written to t-3: broker 1 answers TOPIC"):
        write(cluster, rows, value=0, partition=1)


def test_it_gives_up_in_the_end_and_says_why(clusters: list[FakeCluster]) -> None:
    clusters.append(
        cluster := FakeCluster(fault=lambda _where, _attempt: ErrorCode.NOT_ENOUGH_REPLICAS)
    )
    with pytest.raises(SinkError, match=r"t-2 were not acknowledged.*NOT_ENOUGH_REPLICAS") as said:
        write(
            cluster,
            batch(value=[b"1"], partition=pa.array([2], "int32")),
            given=[("delivery.timeout.ms", "20")],
            value=0,
            partition=1,
        )
    assert "raise kafka.delivery.timeout.ms" in str(said.value)
    assert cluster.attempts[TopicPartition("t", 2)] > 1


def test_small_batches_are_joined_and_large_ones_cut() -> None:
    small = [batch(value=[b"%d" % number]) for number in range(10)]
    (joined,) = gather(iter(small), 10_000)
    assert joined.column(0).to_pylist() == [b"%d" % number for number in range(10)]
    large = batch(value=[b"%d" % number + b"x" * 1000 for number in range(64)])
    pieces = list(gather(iter([large, small[0]]), 10_000))
    assert len(pieces) > 4
    assert max(each.nbytes for each in pieces) <= 30_000
    rejoined = [value for each in pieces for value in each.column(0).to_pylist()]
    assert rejoined == [*large.column(0).to_pylist(), b"0"]


class FakeTransaction:
    """A task's transaction; `refusals` answers of its coordinator before it takes a partition."""

    transactional_id = "task"

    def __init__(self, refusals: int = 0, *, is_ended: bool = False) -> None:
        self.added: list[TopicPartition] = []
        self._refusals = refusals
        self._is_ended = is_ended

    def begin(self) -> PreparedTransaction:
        return PreparedTransaction("task", 40, 2)

    def add(self, partitions: list[TopicPartition]) -> None:
        if self._is_ended:
            raise SinkError("the transaction was ended")
        if self._refusals:
            self._refusals -= 1
            raise PassingError("the previous transaction is still being completed")
        self.added += [each for each in partitions if each not in self.added]


def test_a_transaction_knows_a_partition_before_anything_is_written_to_it(
    clusters: list[FakeCluster],
) -> None:
    transaction = FakeTransaction(refusals=3)
    clusters.append(cluster := FakeCluster(batch_bytes_max=400))
    written: list[tuple[str, BatchHeader, bool]] = []
    answer = cluster.answer

    def note(node_id: int, request: Any) -> Any:
        for topic in request.topic_data:
            for each in topic.partition_data:
                is_added = TopicPartition(topic.name, each.index) in transaction.added
                header = decode_batch_header(each.records)
                written.append((request.transactional_id, header, is_added))
        return answer(node_id, request)

    cluster.answer = note  # type: ignore[method-assign]
    options = SinkOptions(ClientSettings("a:1"), "t")
    keys = [b"key %d" % number for number in range(200)]
    writer = RowWriter(options, SinkColumns(value=0, key=1), cluster, transaction)  # type: ignore[arg-type]
    assert writer.write([batch(value=keys, key=keys)]).records == 200
    # Batches that were too large and went in halves are of the transaction, too.
    assert len(written) > 8
    for transactional_id, header, is_added in written:
        assert (transactional_id, header.producer_id, header.producer_epoch) == ("task", 40, 2)
        assert header.is_transactional
        assert is_added
    assert sorted(value for p in range(4) for value in cluster.values(p) if value) == sorted(keys)


def test_a_transaction_that_was_ended_fails_the_task(clusters: list[FakeCluster]) -> None:
    clusters.append(cluster := FakeCluster())
    transaction = FakeTransaction(is_ended=True)
    options = SinkOptions(ClientSettings("a:1"), "t")
    writer = RowWriter(options, SinkColumns(value=0), cluster, transaction)  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="the transaction was ended"):
        writer.write([batch(value=[b"1"])])
