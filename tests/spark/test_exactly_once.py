"""`exactlyOnce` in Spark: tasks, drivers and brokers die, and another reader counts each row once.

`FAIRLEAD_CLIENTS_AGAINST=kafka` runs it against Apache Kafka.
"""

from __future__ import annotations

import os
import signal
import struct
from collections import Counter
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from marked_transactions import wait_until_marked
from needed_tools import need
from proofs import SPARK_DEATHS
from spark_driver import SparkDriver
from spark_source import DEADLINE_S, Source, Topics
from waiting import wait_until

from fairlead_bench.loads.coordinator_lookup import KeyType, find_coordinator
from fairlead_bench.peers.cluster_state import ask_metadata, wait_until_all_say
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import ensure_kafka
from fairlead_bench.peers.kafka_peer import KafkaPeer
from fairlead_bench.peers.peer import wait_until_ready
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import Cluster
from fairlead_spark.errors import SinkError
from fairlead_spark.exactly_once.batch_commit import BatchCommit
from fairlead_spark.exactly_once.batch_decision import EndTransactions, Step
from fairlead_spark.exactly_once.exactly_once_sink import ExactlyOnceBatchWriter
from fairlead_spark.source import FairleadDataSource
from fairlead_spark.transactions import TransactionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.streaming import StreamingQuery

PROGRAM = Path(__file__).with_name("dying_sink.py")
PARTITIONS = 2
RUN_DEADLINE_S = 400
"""A JVM of its own: 15 s on two idle cores, and far longer on busy ones."""
pytestmark = pytest.mark.timeout(4 * RUN_DEADLINE_S)
DEATHS = int(os.environ.get("FAIRLEAD_RUNS", "1"))
"""How many of those below happen."""
KILLS = ("kill-5", "kill-in-the-end", "kill-4", "kill-6")
"""Behind the decision; in the middle of the ends; before the decision; before the end is noted."""
STOPS = ("stop-1", "stop-4", "stop-0")
"""Before it takes over; before it decides; before its first look at decisions."""
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
REPLICATED = {
    # Of the decisions, too.
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
}


class Role(Enum):
    """What a broker is to the sink when it dies."""

    LEADER = "leads a partition that rows are written to"
    COORDINATOR = "coordinates the driver's transactions"
    DECISIONS = "leads the topic of decisions"


BROKER_FAULTS = (
    (signal.SIGKILL, Role.COORDINATOR),
    (signal.SIGSTOP, Role.LEADER),
    (signal.SIGSTOP, Role.DECISIONS),
    (signal.SIGKILL, Role.LEADER),
    (signal.SIGSTOP, Role.COORDINATOR),
    (signal.SIGKILL, Role.DECISIONS),
)
FAULTS_A_RUN = 3
ROWS_A_FAULT = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadPeer | KafkaPeer]:
    need("java")
    data = tmp_path_factory.mktemp("cluster")
    is_kafka = os.environ.get("FAIRLEAD_CLIENTS_AGAINST") == "kafka"
    with (
        KafkaPeer(ensure_kafka(), data, SETTINGS) if is_kafka else FairleadPeer(data, SETTINGS)
    ) as started:
        started.start()
        wait_until_ready(started)
        yield started


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FairleadCluster | KafkaCluster]:
    """Three brokers, each with a copy of everything."""
    need("java")
    data = tmp_path / "cluster"
    is_kafka = os.environ.get("FAIRLEAD_CLIENTS_AGAINST") == "kafka"
    with (
        KafkaCluster(ensure_kafka(), data, REPLICATED)
        if is_kafka
        else FairleadCluster(data, REPLICATED)
    ) as started:
        started.start()
        wait_until_whole(started)
        yield started


@pytest.fixture
def topics(broker: FairleadPeer | KafkaPeer) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture
def start(topics: Topics, tmp_path: Path) -> Iterator[Callable[..., SparkDriver]]:
    """Starts drivers of one query, with one checkpoint; each fault happens once."""
    drivers: list[SparkDriver] = []
    (tmp_path / "marks").mkdir()

    def run(name: str, *faults: str) -> SparkDriver:
        places = (tmp_path / "checkpoint", tmp_path / "marks")
        arguments = (topics.bootstrap, "origin", "target", *map(str, places), *faults)
        drivers.append(SparkDriver(PROGRAM, *arguments, folder=tmp_path / name))
        return drivers[-1]

    topics.create("origin", PARTITIONS)
    topics.create("target", PARTITIONS)
    yield run
    for each in drivers:
        each.end()
    for name in ("origin", "target"):
        topics.delete(name)
        wait_until(
            partial(is_gone, topics, name),
            f"{name} is still there",
        )


def fill(bootstrap: str, topic: str, count: int, *, since: int = 0) -> Counter[str]:
    """Write in transactions, every second of which is aborted; return what was committed."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"fill-{topic}", "linger.ms": 5}
    )
    producer.init_transactions(DEADLINE_S)
    committed: Counter[str] = Counter()
    for first in range(since, since + count, 50):
        for is_commit in (False, True):
            producer.begin_transaction()
            for number in range(first, first + 50):
                value = f"row {number}" if is_commit else f"aborted {number}"
                producer.produce(topic, value, partition=number % PARTITIONS)
                committed[value] += is_commit
            if is_commit:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.flush(DEADLINE_S)
                producer.abort_transaction(DEADLINE_S)
    return +committed


def count(bootstrap: str, topic: str, isolation: str = "read_committed") -> Counter[str]:
    """What a reader of another kind finds, up to where it can read."""
    wait_until_marked(bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"count-{topic}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: Counter[str] = Counter()
    ended: set[int] = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "nothing comes"
            if message.error():
                ended.add(message.partition())
            else:
                found[message.value().decode()] += 1
    finally:
        consumer.close()
    return found


def wait_until_whole(cluster: FairleadCluster | KafkaCluster) -> None:
    """Until every broker says that all replicas of all partitions are in sync."""
    wait_until_all_say(
        cluster,
        lambda reply: (
            reply.brokers_count == len(cluster.ports)
            and reply.in_sync_count == reply.partitions_count
        ),
        what="all replicas in sync",
    )


def find_broker(cluster: FairleadCluster | KafkaCluster, role: Role, asked: int, query: str) -> int:
    """Return the index of the broker that has a role as broker `asked` says; -1 for nobody."""
    port = cluster.ports[asked]
    try:
        if role is Role.COORDINATOR:
            found = find_coordinator(port, f"fairlead-spark.{query}.driver", KeyType.TRANSACTION)
        else:
            topic = "target" if role is Role.LEADER else "fairlead-spark-decisions"
            found = ask_metadata(port, [topic]).leaders.get((topic, 0))
    except (OSError, struct.error):
        found = None
    return -1 if found is None else found - cluster.broker_id(0)


def fail_broker(
    cluster: FairleadCluster | KafkaCluster, number: signal.Signals, role: Role, query: str
) -> None:
    """Kill or stop a broker until another one has its role; then it is there again."""
    wait_until(lambda: find_broker(cluster, role, 0, query) >= 0, deadline_s=DEADLINE_S)
    broker = find_broker(cluster, role, 0, query)
    other = (broker + 1) % len(cluster.ports)
    if number is signal.SIGKILL:
        cluster.kill_broker(broker)
    else:
        os.kill(cluster.brokers[broker].pid, number)
    try:
        wait_until(
            lambda: find_broker(cluster, role, other, query) not in (-1, broker),
            f"nobody takes the place of the broker that {role.value}",
            deadline_s=DEADLINE_S,
        )
    finally:
        if number is signal.SIGKILL:
            cluster.start_broker(broker)
        else:
            os.kill(cluster.brokers[broker].pid, signal.SIGCONT)
    wait_until_whole(cluster)


def written(bootstrap: str, topic: str) -> int:
    """How many records a topic holds, whatever becomes of them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "isolation.level": "read_uncommitted"}
    )
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=DEADLINE_S)
            for number in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(high for _, high in ends)


def has_more(bootstrap: str, count: int) -> bool:
    return written(bootstrap, "target") > count


def is_gone(topics: Topics, name: str) -> bool:
    return name not in topics.admin.list_topics(timeout=60).topics


def wait_while_active(query: StreamingQuery, condition: Callable[[], bool], what: str) -> None:
    """Until a condition holds; a query that has failed is not waited for."""

    def holds() -> bool:
        assert query.isActive, query.exception()
        return condition()

    wait_until(holds, what, deadline_s=DEADLINE_S)


def wanted(committed: Counter[str]) -> Counter[str]:
    return Counter({f"done {value}": times for value, times in committed.items()})


@SPARK_DEATHS.mark
def test_tasks_and_drivers_that_die_anywhere_write_each_row_once(
    start: Callable[..., SparkDriver], topics: Topics, tmp_path: Path
) -> None:
    committed = fill(topics.bootstrap, "origin", 2000)
    kills = KILLS[:DEATHS]
    tasks = ("task-in-the-middle", "task-behind-its-rows")
    for _ in kills:
        killed = start("driver", *tasks, *kills)
        assert killed.wait(RUN_DEADLINE_S) == -signal.SIGKILL, killed.last_words()
    last = start("driver", *tasks, *kills)
    assert last.wait(RUN_DEADLINE_S) == 0, last.last_words()
    assert {each.name for each in (tmp_path / "marks").iterdir()} == {*kills, *tasks}
    assert count(topics.bootstrap, "target") == wanted(committed)
    # What died had written rows.
    assert count(topics.bootstrap, "target", "read_uncommitted").total() > committed.total()


@SPARK_DEATHS.mark
@pytest.mark.parametrize("step", STOPS[:DEATHS])
def test_a_driver_that_slept_while_another_took_its_place_is_fenced(
    start: Callable[..., SparkDriver], topics: Topics, tmp_path: Path, step: str
) -> None:
    committed = fill(topics.bootstrap, "origin", 1000)
    older = start("older", step)
    wait_until((tmp_path / "marks" / step).exists, older.last_words, deadline_s=RUN_DEADLINE_S)
    newer = start("newer", step)
    assert newer.wait(RUN_DEADLINE_S) == 0, newer.last_words()
    assert count(topics.bootstrap, "target") == wanted(committed)
    older.signal_all(signal.SIGCONT)
    assert older.wait(RUN_DEADLINE_S) != 0
    assert "FencedError: batch 0 of" in older.log()
    assert "a driver whose application began" in older.log()
    assert count(topics.bootstrap, "target") == wanted(committed)


@SPARK_DEATHS.mark
def test_brokers_that_die_or_freeze_under_the_sink_cost_no_row_and_double_none(
    spark: SparkSession, cluster: FairleadCluster | KafkaCluster, tmp_path: Path
) -> None:
    """Nothing of Spark dies, and nothing of it may fail: a task is not run again here."""
    topics = Topics(cluster.bootstrap)
    for name in ("origin", "target"):
        topics.create(name, PARTITIONS, copies=len(cluster.ports))
    source = Source(spark, cluster.bootstrap, "fairlead")
    rows = source.stream(
        subscribe="origin", maxOffsetsPerTrigger=100, **{"kafka.isolation.level": "read_committed"}
    )
    query = (
        rows.selectExpr("key", "concat('done ', CAST(value AS STRING)) AS value")
        .writeStream.format("fairlead")
        .options(**source.options({"topic": "target", "exactlyOnce": "true"}))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    committed: Counter[str] = Counter()
    try:
        for turn, (number, role) in enumerate(BROKER_FAULTS[: FAULTS_A_RUN * DEATHS]):
            before = written(cluster.bootstrap, "target")
            since = turn * ROWS_A_FAULT
            committed += fill(cluster.bootstrap, "origin", ROWS_A_FAULT, since=since)
            wait_while_active(
                query,
                partial(has_more, cluster.bootstrap, before),
                "no row is written",
            )
            fail_broker(cluster, number, role, str(query.id))
        wait_while_active(
            query,
            lambda: count(cluster.bootstrap, "target").total() >= committed.total(),
            "rows are missing",
        )
        query.processAllAvailable()
    finally:
        query.stop()
    assert count(cluster.bootstrap, "target") == wanted(committed)


def test_a_batch_write_is_there_once_however_often_it_is_run(
    spark: SparkSession, broker: FairleadPeer | KafkaPeer, topics: Topics
) -> None:
    name = topics.create("batches", PARTITIONS)
    source = Source(spark, broker.bootstrap, "fairlead")
    rows = spark.range(500).selectExpr("concat('row ', id) AS value").repartition(3)
    source.write(rows, topic=name, exactlyOnce="true")
    assert count(broker.bootstrap, name) == Counter(f"row {number}" for number in range(500))
    for _ in range(2):
        source.write(rows, topic=name, exactlyOnce="true", txnAppId="nightly", txnVersion=20)
    assert set(count(broker.bootstrap, name).values()) == {2}
    over = f"FencedError: batch 19 of nightly/{name} was decided long ago"
    with pytest.raises(Exception, match=over):
        source.write(rows, topic=name, exactlyOnce="true", txnAppId="nightly", txnVersion=19)


def test_a_batch_that_goes_to_two_topics_by_one_name_is_there_once_in_both(
    spark: SparkSession, broker: FairleadPeer | KafkaPeer, topics: Topics
) -> None:
    """So Delta's own example does it in foreachBatch. The second topic remained empty."""
    source = Source(spark, broker.bootstrap, "fairlead")
    rows = spark.range(50).selectExpr("concat('row ', id) AS value")
    names = [topics.create(f"both-{number}", PARTITIONS) for number in range(2)]
    for _ in range(2):
        for name in names:
            source.write(rows, topic=name, exactlyOnce="true", txnAppId="both", txnVersion=1)
    once = Counter(f"row {number}" for number in range(50))
    assert [count(broker.bootstrap, name) for name in names] == [once, once]


def test_what_is_prepared_waits_for_a_driver_as_long_as_a_setting_says_and_is_lost_by_name(
    spark: SparkSession, broker: FairleadPeer | KafkaPeer, topics: Topics
) -> None:
    spark.dataSource.register(halting_sink())
    name = topics.create("prepared", PARTITIONS)
    source, halting = (Source(spark, broker.bootstrap, each) for each in ("fairlead", "halting"))
    rows = spark.range(200).selectExpr("concat('row ', id) AS value").repartition(2)
    once = Counter(f"row {number}" for number in range(200))
    given = {"topic": name, "exactlyOnce": "true", "txnAppId": "prepared"}

    with pytest.raises(Exception, match="the driver dies"):
        halting.write(rows, **given, txnVersion=1)
    assert count(broker.bootstrap, name) == Counter()
    source.write(rows, **given, txnVersion=1)
    assert count(broker.bootstrap, name) == once

    for version in range(2, 10):
        # On a busy machine a short one is over before the decision, which leaves nothing.
        short = given | {"kafka.transaction.timeout.ms": 500 << version, "txnVersion": version}
        with pytest.raises(Exception, match="SinkError: ") as said:
            halting.write(rows, **short)
        if "the driver dies" in str(said.value):
            break
    cluster = Cluster(ClientSettings(broker.bootstrap))
    client = TransactionClient(cluster)
    wait_until(lambda: not client._list_open(), "it waits for ever", deadline_s=DEADLINE_S)
    cluster.close()
    for _ in range(2):
        lost = f"LostTransactionError: batch {version} of prepared/prepared was decided"
        with pytest.raises(Exception, match=lost):
            source.write(rows, **short)
    source.write(rows, **short, failOnDataLoss="false")
    assert count(broker.bootstrap, name) == once


def halting_sink() -> type[FairleadDataSource]:
    """A sink whose driver dies behind its decision. Local, so that Spark's workers get its code."""

    class HaltingWriter(ExactlyOnceBatchWriter):
        def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
            carry_out = BatchCommit._carry_out

            def halt(driver: BatchCommit, step: Step) -> Any:
                if isinstance(step, EndTransactions) and step.is_commit:
                    raise SinkError("the driver dies")
                return carry_out(driver, step)

            BatchCommit._carry_out = halt  # type: ignore[method-assign, assignment]
            try:
                super().commit(messages)
            finally:
                # Spark uses its worker again.
                BatchCommit._carry_out = carry_out  # type: ignore[method-assign]

    class HaltingSink(FairleadDataSource):
        @classmethod
        def name(cls) -> str:
            return "halting"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            writer.__class__ = HaltingWriter
            return writer

    return HaltingSink


def test_a_task_that_fails_leaves_nothing_that_readers_wait_for(
    spark: SparkSession, broker: FairleadPeer | KafkaPeer, topics: Topics
) -> None:
    name = topics.create("failing", PARTITIONS)
    source = Source(spark, broker.bootstrap, "fairlead")
    # The last row of one task goes to a partition that does not exist.
    rows = spark.range(1000).selectExpr(
        "repeat('x', 1000) AS value", "IF(id = 999, 77, 0) AS partition"
    )
    with pytest.raises(Exception, match="written to failing-77"):
        source.write(rows, topic=name, exactlyOnce="true")
    assert count(broker.bootstrap, name) == Counter()
    source.write(rows.where("partition = 0"), topic=name, exactlyOnce="true")
    assert count(broker.bootstrap, name).total() == 999


def test_read_committed_leaves_out_what_was_aborted(
    spark: SparkSession, broker: FairleadPeer | KafkaPeer, topics: Topics
) -> None:
    name = topics.create("aborted", PARTITIONS)
    committed = fill(broker.bootstrap, name, 500)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(name, "open", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    source = Source(spark, broker.bootstrap, "fairlead")
    options = {"subscribe": name, "kafka.isolation.level": "read_committed"}
    rows = source.read(**options).selectExpr("CAST(value AS STRING) AS value", "offset")
    found = rows.collect()
    assert Counter(each.value for each in found) == committed
    # Aborted rows and markers take offsets.
    assert max(each.offset for each in found) > 500
    uncommitted = source.read(subscribe=name).selectExpr("CAST(value AS STRING) AS value")
    assert uncommitted.where("value = 'open'").count() == 1
    assert uncommitted.count() == 2 * committed.total() + 1
    producer.abort_transaction(DEADLINE_S)
