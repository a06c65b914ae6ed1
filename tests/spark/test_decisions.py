"""The steps of exactly-once writes on a real broker, without Spark: who decides, who is fenced.

`FAIRLEAD_CLIENTS_AGAINST=kafka` runs them against Apache Kafka.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from marked_transactions import wait_until_marked
from spark_source import Topics
from waiting import wait_until

from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.kafka_distribution import ensure_kafka
from fairlead_bench.peers.kafka_peer import KafkaPeer
from fairlead_bench.peers.peer import wait_until_ready
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import Cluster, PassingError
from fairlead_spark.errors import (
    FencedError,
    LostTransactionError,
    OptionError,
    SinkError,
    SourceError,
    TakenOverError,
)
from fairlead_spark.exactly_once.batch_commit import BatchCommit, abort_leftovers
from fairlead_spark.exactly_once.batch_decision import (
    BatchWriter,
    Decision,
    abort_batch,
    commit_batch,
)
from fairlead_spark.exactly_once.decision_log import DecisionLog
from fairlead_spark.exactly_once.decision_records import DECISIONS_TOPIC, DecisionReplay
from fairlead_spark.exactly_once.task_transaction import (
    Attempt,
    OverError,
    TaskTransaction,
    WriteName,
)
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.transactions import TransactionClient
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fairlead_wire.records import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_spark.prepared_transaction import PreparedTransaction

DEADLINE_S = 60
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.max.timeout.ms": "120000",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadPeer | KafkaPeer]:
    data = tmp_path_factory.mktemp("cluster")
    is_kafka = os.environ.get("FAIRLEAD_CLIENTS_AGAINST") == "kafka"
    with (
        KafkaPeer(ensure_kafka(), data, SETTINGS) if is_kafka else FairleadPeer(data, SETTINGS)
    ) as started:
        started.start()
        wait_until_ready(started)
        yield started


class Query:
    """One query, its topic, and drivers of it that never ran in Spark."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = uuid.uuid4().hex
        self.topic = Topics(bootstrap).create(f"t-{self.name}", 1)
        self.cluster = Cluster(ClientSettings(bootstrap))
        self.client = TransactionClient(self.cluster)

    def writer(self, batch: int, *, since_ms: int = 1, run: str = "run") -> BatchWriter:
        return BatchWriter(self.name, batch, run, since_ms)

    def prepare(
        self, writer: BatchWriter, *values: str, attempt: str = "0", timeout_s: float = 60
    ) -> PreparedTransaction:
        """What a task does."""
        begun = self.client.begin(writer.task_transactional_id(0, attempt), timeout_s)
        where = TopicPartition(self.topic, 0)
        self.cluster.retry(lambda: self.client.add_partitions(begun, [where]), "a partition")
        batch = encode_batch(
            [Record(index, 0, None, value.encode()) for index, value in enumerate(values)],
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = ProduceRequest(
            transactional_id=begun.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(0, batch)])
            ],
        )

        def write() -> None:
            leader, _ = self.cluster.leader_of(*where)
            reply = self.cluster.call(leader, request, 9)
            if reply.responses[0].partition_responses[0].error_code:
                self.cluster.forget_leaders()
                raise PassingError("not written yet")

        self.cluster.retry(write, "a partition")
        return begun

    def prepare_briefly(self, writer: BatchWriter, value: str, attempt: str) -> PreparedTransaction:
        """Do the same in a transaction whose time is out soon."""
        # On a busy machine that may be before the record is written.
        with suppress(SourceError):
            return self.prepare(writer, value, attempt=attempt, timeout_s=3)
        return self.prepare(writer, value, attempt=attempt, timeout_s=20)

    def commit(
        self, writer: BatchWriter, *prepared: PreparedTransaction, goes_on: bool = False
    ) -> None:
        self.driver(writer).run(commit_batch(writer, prepared, fail_on_data_loss=not goes_on))

    def abort(self, writer: BatchWriter, *prepared: PreparedTransaction) -> None:
        self.driver(writer).run(abort_batch(writer, prepared))

    def driver(self, writer: BatchWriter) -> BatchCommit:
        return BatchCommit(self.cluster, writer, DecisionReplay(self.name))

    def log(self) -> DecisionLog:
        return DecisionLog(self.cluster, DecisionReplay(self.name))

    def committed(self) -> list[str]:
        """What an independent reader of read_committed finds up to the last stable offset."""
        wait_until_marked(self.bootstrap)
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.name,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        consumer.assign([ConfluentPartition(self.topic, 0, 0)])
        found: list[str] = []
        try:
            while (message := consumer.poll(DEADLINE_S)) is not None and not message.error():
                found.append(message.value().decode())
        finally:
            consumer.close()
        return found

    def wait_until_timed_out(self, prepared: PreparedTransaction) -> None:
        wait_until(
            lambda: bool(self.client.find_lost([prepared])),
            "the transaction does not time out",
            deadline_s=DEADLINE_S,
        )


@pytest.fixture
def query(broker: FairleadPeer | KafkaPeer) -> Iterator[Query]:
    made = Query(broker.bootstrap)
    yield made
    made.cluster.close()


def test_a_batch_is_there_when_it_is_decided_and_again_when_it_is_run_again(query: Query) -> None:
    writer = query.writer(0)
    first, second = query.prepare(writer, "a", "b"), query.prepare(writer, "c", attempt="r1")
    assert query.committed() == []
    query.commit(writer, first, second)
    assert query.committed() == ["a", "b", "c"]
    again = query.writer(0, since_ms=2, run="next")
    query.commit(again, query.prepare(again, "a", "b", "c"))
    assert query.committed() == ["a", "b", "c"]
    assert query.log().read() == Decision(0, "next", 2, is_ended=True, turn=1)
    later = query.writer(1, since_ms=2, run="next")
    query.commit(later, query.prepare(later, "d"))
    assert query.committed() == ["a", "b", "c", "d"]


def test_a_driver_that_died_behind_its_decision_is_finished_by_the_next(query: Query) -> None:
    writer = query.writer(0)
    prepared = query.prepare(writer, "a")
    decide_only(query, Decision(0, writer.run, writer.since_ms, (prepared,)))
    assert query.committed() == []
    query.commit(query.writer(0, since_ms=2, run="next"))
    assert query.committed() == ["a"]


def test_an_older_driver_is_fenced_and_what_it_had_open_is_aborted(query: Query) -> None:
    older, newer = query.writer(0), query.writer(0, since_ms=2, run="next")
    from_older = query.prepare(older, "older")
    query.commit(newer, query.prepare(newer, "newer"))
    with pytest.raises(FencedError, match=f"batch 0 of {query.name}: a driver whose application"):
        query.commit(older, from_older)
    assert query.client.find_lost([from_older]) == [from_older]
    assert query.committed() == ["newer"]


def test_a_decision_is_refused_behind_a_take_over(query: Query) -> None:
    """It was about to write it: the brokers know the newer epoch."""
    writer = query.writer(0)
    owner = query.client.begin(writer.transactional_id, 60)
    query.client.begin(writer.transactional_id, 60)
    with pytest.raises(TakenOverError):
        query.log().write(Decision(0, "run", 1), None, client=query.client, owner=owner, sequence=0)
    assert query.log().read() is None


def test_a_decision_is_refused_where_another_one_was_the_last(query: Query) -> None:
    """What it had read was old: a leader that was replaced answers, too."""
    decide_only(query, Decision(0, "run", 1, is_ended=True))
    writer = query.writer(1)
    owner = query.client.begin(writer.transactional_id, 60)
    with pytest.raises(TakenOverError):
        query.log().write(
            Decision(0, "other", 1), None, client=query.client, owner=owner, sequence=0
        )
    assert query.log().read() == Decision(0, "run", 1, is_ended=True)


def test_a_version_that_failed_does_not_stand_for_those_below_it(query: Query) -> None:
    """Nothing was written under the name yet, and 19 counted as decided."""
    failed = query.writer(20)
    query.abort(failed, query.prepare(failed, "a"))
    lower = query.writer(10)
    query.commit(lower, query.prepare(lower, "b", attempt="1-0"))
    again = query.writer(20)
    query.commit(again, query.prepare(again, "c", attempt="2-0"))
    assert query.committed() == ["b", "c"]


def test_a_topic_of_decisions_that_was_made_again_is_read_anew(query: Query) -> None:
    """Who had read the one before went on behind as many records of the new one."""
    decide_only(query, Decision(3, "run", 1, is_ended=True))
    reader = query.log()
    assert reader.read() == Decision(3, "run", 1, is_ended=True)
    topics = Topics(query.bootstrap)
    topics.delete(DECISIONS_TOPIC)
    wait_until(
        lambda: DECISIONS_TOPIC not in topics.admin.list_topics(timeout=60).topics,
        "the decisions are still there",
    )
    decide_only(query, Decision(4, "run", 1, is_ended=True))
    for number in range(reader.replay.next_offset + 1):
        query.log().note_given_up(f"another-{number}")
    assert reader.read() == Decision(4, "run", 1, is_ended=True)


def test_the_open_decision_of_another_query_hides_none(query: Query) -> None:
    other = Query(query.bootstrap)
    owner = other.client.begin(other.writer(0).transactional_id, 60)
    decide_only(query, Decision(0, "run", 1, is_ended=True))
    where = TopicPartition("fairlead-spark-decisions", 0)
    other.cluster.retry(lambda: other.client.add_partitions(owner, [where]), "a partition")
    query.cluster.retry(
        lambda: other.log()._produce(decision_batch(other, owner), owner.transactional_id),
        "a decision",
    )
    decide_only(query, Decision(1, "run", 1, is_ended=True))
    assert query.log().read() == Decision(1, "run", 1, is_ended=True)
    assert other.log().read() is None
    other.client.end([owner], is_commit=True)
    assert other.log().read() == Decision(5, "other", 1)
    other.cluster.close()


def test_what_timed_out_before_it_was_decided_is_an_error_and_leaves_nothing(query: Query) -> None:
    writer = query.writer(0)
    lost, kept = query.prepare_briefly(writer, "b", "r1"), query.prepare(writer, "a")
    query.wait_until_timed_out(lost)
    with pytest.raises(SinkError, match=f"batch 0 of {query.name} is not written: before") as said:
        query.commit(writer, kept, lost)
    assert lost.transactional_id in str(said.value)
    query.abort(writer, kept, lost)
    assert query.committed() == []
    query.commit(writer, query.prepare(writer, "a"), query.prepare(writer, "b", attempt="r2"))
    assert query.committed() == ["a", "b"]


def test_what_timed_out_behind_its_decision_is_an_error_that_names_the_batch(query: Query) -> None:
    writer = query.writer(4)
    lost, kept = query.prepare_briefly(writer, "b", "r1"), query.prepare(writer, "a")
    decide_only(query, Decision(4, writer.run, writer.since_ms, (kept, lost)))
    query.wait_until_timed_out(lost)
    said = f"batch 4 of {query.name} was decided, but brokers had ended 1"
    for _ in range(2):
        # Never silently, however often it is run again.
        with pytest.raises(LostTransactionError, match=said):
            query.commit(writer)
    assert query.committed() == ["a"]
    query.commit(writer, goes_on=True)
    query.commit(writer)
    later = query.writer(5)
    query.commit(later, query.prepare(later, "c"))
    assert query.committed() == ["a", "c"]


def test_spark_aborts_a_batch_whose_commit_failed_behind_its_decision(query: Query) -> None:
    writer = query.writer(0)
    prepared = query.prepare(writer, "a")
    decide_only(query, Decision(0, writer.run, writer.since_ms, (prepared,)))
    query.abort(writer, prepared)
    assert query.client.find_lost([prepared]) == []
    query.commit(writer, prepared)
    assert query.committed() == ["a"]


def test_a_batch_that_failed_is_aborted_with_what_its_lost_attempts_have_open(query: Query) -> None:
    writer = query.writer(0)
    prepared, lost = query.prepare(writer, "a"), query.prepare(writer, "a", attempt="r1")
    other = query.prepare(BatchWriter(f"{query.name}.2", 0, "run", 1), "other")
    query.abort(writer, prepared)
    assert query.client.find_lost([prepared, lost, other]) == [prepared, lost]
    query.client.end([other], is_commit=False)


@pytest.fixture
def task(query: Query) -> TaskTransaction:
    return TaskTransaction(
        query.cluster, query.writer(3, run=query.name), Attempt(0, 1, is_first=True), 60
    )


def test_a_task_that_opens_its_transaction_when_its_batch_was_given_up_ends_it(
    query: Query, task: TaskTransaction
) -> None:
    """Its driver has looked for what is open before, and does not look again."""
    assert task.is_needed()
    begun = task.begin()
    query.abort(query.writer(3, run=query.name))
    with pytest.raises(SinkError, match=f"batch 3 of {query.name} is over"):
        query.cluster.retry(lambda: task.add([TopicPartition(query.topic, 0)]), "a partition")
    assert query.client.find_lost([begun]) == []
    task.abort()
    assert query.client.find_lost([begun]) == [begun]


def test_a_task_of_a_batch_write_finds_that_it_was_given_up_though_none_was_heard_of(
    query: Query,
) -> None:
    writer = query.writer(0)._replace(write=f"w-{query.name}")
    task = TaskTransaction(query.cluster, writer, Attempt(0, 1, is_first=True), 60)
    assert task.is_needed()
    abort_leftovers(query.cluster, WriteName(query.name, 0, writer.write))
    with pytest.raises(SinkError, match=f"batch 0 of {query.name} is over"):
        task.begin()


def test_a_write_of_foreach_batch_of_which_no_task_was_heard_leaves_nothing_open(
    query: Query,
) -> None:
    """Its tasks' ids have the run of the query: those of an unnamed write were never aborted."""
    write = f"w-{query.name}"
    writer = BatchWriter(write, 0, "run-of-the-query", 1, write=write)
    begun, other = query.prepare(writer, "a"), query.prepare(query.writer(0), "b")
    abort_leftovers(query.cluster, WriteName(write, 0, write))
    assert query.client.find_lost([begun, other]) == [begun]
    query.client.end([other], is_commit=False)


def test_a_task_that_wakes_up_behind_a_decision_takes_no_id(
    query: Query, task: TaskTransaction
) -> None:
    assert task.is_needed()
    same = TaskTransaction(
        query.cluster, query.writer(3, run=query.name), Attempt(0, 1, is_first=True), 60
    )
    same.begin()
    query.cluster.retry(lambda: same.add([TopicPartition(query.topic, 0)]), "a partition")
    assert same.prepared is not None
    decide_only(query, Decision(3, query.name, 1, (same.prepared,), turn=1))
    with pytest.raises(OverError, match=f"batch 3 of {query.name} was decided"):
        task.begin()
    query.commit(query.writer(3, run=query.name), same.prepared)
    later = TaskTransaction(
        query.cluster, query.writer(4, run=query.name), Attempt(0, 1, is_first=True), 60
    )
    assert later.begin().transactional_id != same.transactional_id


def test_a_time_out_that_brokers_refuse_is_an_error_that_names_both_settings(query: Query) -> None:
    with pytest.raises(OptionError, match=r"kafka\.transaction\.timeout\.ms is 900000") as said:
        query.prepare(query.writer(0), "a", timeout_s=900)
    assert "transaction.max.timeout.ms" in str(said.value)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_decisions_that_brokers_would_delete_are_refused(query: Query, policy: str) -> None:
    query.log().read()
    set_cleanup_policy(query, policy)
    try:
        with pytest.raises(SinkError, match=f"has cleanup.policy={policy}") as said:
            query.log().read()
        assert "set cleanup.policy=compact" in str(said.value)
    finally:
        set_cleanup_policy(query, "compact")
    assert query.log().read() is None


def set_cleanup_policy(query: Query, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", DECISIONS_TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": query.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)


def decide_only(query: Query, decision: Decision) -> None:
    """As a driver that dies before it ends anything."""
    writer = query.writer(0)
    owner = query.client.begin(writer.transactional_id, 60)
    log = query.log()
    log.write(decision, log.read(), client=query.client, owner=owner, sequence=0)


def decision_batch(query: Query, owner: PreparedTransaction) -> bytes:
    from fairlead_spark.exactly_once.decision_records import encode_decision

    return encode_batch(
        [Record(0, 0, query.name.encode(), encode_decision(Decision(5, "other", 1)))],
        producer_id=owner.producer_id,
        producer_epoch=owner.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
