"""Transactions on three real brokers: whoever dies, each is whole or not there."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from needed_tools import missing
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka

DEADLINE_S = 60.0
PARTITIONS = 3
CHANNELS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"


class Ledger:
    """A cluster, what transactions wrote, and which of them were committed."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.committed: list[bytes] = []

    def create(self, name: str, partitions: int = PARTITIONS, *, factor: int = 3) -> None:
        config = {"min.insync.replicas": "2" if factor > 1 else "1"}
        topic = NewTopic(name, partitions, factor, config=config)
        self.admin.create_topics([topic])[name].result(DEADLINE_S)
        wait_until(lambda: all(self.leader(name, index) >= 0 for index in range(partitions)))

    def partitions(self, name: str) -> dict[int, Any]:
        """What brokers tell of a topic; nothing if none answers."""
        try:
            return dict(self.admin.list_topics(name, timeout=1).topics[name].partitions)
        except KafkaException:
            # It asked a broker that is dead, and would ask that one again.
            self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
            return {}

    def leader(self, name: str, index: int) -> int:
        partition = self.partitions(name).get(index)
        return -1 if partition is None else int(partition.leader)

    def is_in_sync(self) -> bool:
        """Whether all replicas of `t` and of the transactions' topic are."""
        topics = [self.partitions(name) for name in ("t", "__transaction_state")]
        return all(
            partitions and all(len(each.isrs) == 3 for each in partitions.values())
            for partitions in topics
        )

    def markers_without_leader(self) -> int:
        """Over all brokers that answer."""
        name = f"{CHANNELS}_unknowndestinationqueuesize "
        return sum(
            int(float(line.removeprefix(name)))
            for broker in self.cluster.brokers
            if broker.process.poll() is None
            for line in broker.get("/metrics")[1].splitlines()
            if line.startswith(name)
        )

    def producer(self, transactional_id: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        producer.init_transactions(DEADLINE_S)
        return producer

    def write(self, producer: Producer, name: str, number: int, *indexes: int) -> list[bytes]:
        """Begin a transaction and send a record to each partition."""
        producer.begin_transaction()
        values = [b"%s %d %d" % (name.encode(), number, index) for index in indexes]
        for index, value in zip(indexes, values, strict=True):
            producer.produce(name, value, partition=index)
        assert producer.flush(DEADLINE_S) == 0
        return values

    def commit(self, producer: Producer, values: list[bytes]) -> None:
        producer.commit_transaction(DEADLINE_S)
        self.committed += values

    def read(self, name: str, *, partitions: int = PARTITIONS) -> list[bytes]:
        """What a reader of committed records finds up to the last stable offsets."""
        reader = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        reader.assign([TopicPartition(name, index, 0) for index in range(partitions)])
        found: list[bytes] = []
        ends = 0
        deadline = time.monotonic() + DEADLINE_S
        while ends < partitions:
            assert time.monotonic() < deadline, "a partition does not end"
            message = reader.poll(1)
            if message is None:
                continue
            if message.error():
                ends += 1
            else:
                found.append(message.value())
        reader.close()
        return found


@pytest.fixture
def ledger(make_cluster: Callable[..., Any]) -> Iterator[Ledger]:
    settings = {
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    yield Ledger(make_cluster(brokers=3, settings=settings, is_patient=True))


@pytest.fixture
def make_tools() -> Callable[[Any], JavaTools]:
    """Kafka's tools, for a cluster."""
    try:
        distribution = ensure_kafka()
    except KafkaUnavailableError as error:
        missing(str(error))
    return lambda cluster: JavaTools(distribution, cluster.bootstrap)


@pytest.mark.slow
def test_leaders_that_die_between_the_records_and_the_markers_lose_no_transaction(
    ledger: Ledger,
) -> None:
    """Each broker in turn: leader of partitions, coordinator, or both."""
    ledger.create("t")
    producer = ledger.producer("id")
    number = 0
    for victim in ledger.cluster.brokers:
        ledger.commit(producer, ledger.write(producer, "t", number, 0, 1, 2))
        number += 1
        values = ledger.write(producer, "t", number, 0, 1, 2)
        victim.kill()
        ledger.commit(producer, values)
        number += 1
        ledger.write(producer, "t", number, 0, 1, 2)
        producer.abort_transaction(DEADLINE_S)
        number += 1
        victim.start()
        wait_until(ledger.is_in_sync)
    ledger.commit(producer, ledger.write(producer, "t", number, 0, 1, 2))
    wait_until(lambda: sorted(ledger.read("t")) == sorted(ledger.committed), deadline_s=DEADLINE_S)


def test_an_offline_partition_holds_up_its_own_transaction_only(ledger: Ledger) -> None:
    ledger.create("t")
    ledger.create("lonely", factor=1)
    away = ledger.leader("lonely", 0)
    stuck, free = ledger.producer("stuck"), ledger.producer("free")
    values = ledger.write(stuck, "t", 1, 0, 1, 2)
    stuck.produce("lonely", b"lonely", partition=0)
    assert stuck.flush(DEADLINE_S) == 0
    others = ledger.write(free, "t", 2, 0, 1, 2)
    ledger.cluster.brokers[away].kill()
    ledger.commit(stuck, values)
    ledger.commit(free, others)
    wait_until(lambda: sorted(ledger.read("t")) == sorted(ledger.committed), deadline_s=DEADLINE_S)
    for number in range(3, 6):
        ledger.commit(free, ledger.write(free, "t", number, 0, 1, 2))
    wait_until(lambda: sorted(ledger.read("t")) == sorted(ledger.committed), deadline_s=DEADLINE_S)
    wait_until(lambda: ledger.markers_without_leader() == 1)
    ledger.cluster.brokers[away].start()
    wait_until(lambda: ledger.leader("lonely", 0) == away)
    wait_until(lambda: ledger.read("lonely", partitions=1) == [b"lonely"], deadline_s=DEADLINE_S)
    wait_until(lambda: ledger.markers_without_leader() == 0)


def test_a_coordinator_that_dies_after_its_answer_has_its_markers_written_by_the_next(
    ledger: Ledger,
) -> None:
    """Commits are decided when they are answered; nobody asks again."""
    ledger.create("t")
    producers = [ledger.producer(f"id-{number}") for number in range(6)]
    opened = [
        ledger.write(producer, "t", number, 0, 1, 2) for number, producer in enumerate(producers)
    ]
    for producer, values in zip(producers, opened, strict=True):
        ledger.commit(producer, values)
    for victim in ledger.cluster.brokers[:2]:
        victim.kill()
        victim.start()
        wait_until(ledger.is_in_sync)
    wait_until(lambda: sorted(ledger.read("t")) == sorted(ledger.committed), deadline_s=DEADLINE_S)


@pytest.mark.java
def test_java_producers_have_an_epoch_for_each_transaction(
    ledger: Ledger, make_tools: Callable[[Any], JavaTools]
) -> None:
    """Kafka 4 clients choose version 2 of the protocol by what ApiVersions tells them."""
    ledger.create("t")
    tools = make_tools(ledger.cluster)
    output = tools.run(
        "kafka-producer-perf-test",
        *("--topic", "t", "--num-records", "5000", "--record-size", "100", "--throughput", "2000"),
        *("--transactional-id", "java", "--transaction-duration-ms", "20"),
        *("--command-property", "acks=all"),
    )
    assert "5000 records sent" in output
    wait_until(lambda: len(ledger.read("t")) == 5000, deadline_s=DEADLINE_S)
    described = tools.run("kafka-transactions", "describe", "--transactional-id", "java")
    row = dict(zip(*(line.split("\t") for line in described.splitlines()[:2]), strict=False))
    assert int(row["ProducerEpoch"]) > 10
