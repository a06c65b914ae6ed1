"""`kafka-transactions`, as an administrator uses it against transactions that hold up readers."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from needed_tools import missing

from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka

pytestmark = pytest.mark.java

DEADLINE_S = 60.0
AT_ONCE = ("--max-transaction-timeout", "0")
"""In minutes: every open transaction is a candidate."""


def rows(output: str) -> list[dict[str, str]]:
    """The table that a command prints."""
    names, *lines = [
        [cell.strip() for cell in line.split("\t")] for line in output.splitlines() if line.strip()
    ]
    return [dict(zip(names, line, strict=True)) for line in lines]


class Transactions:
    """One broker, one open transaction in both partitions of a topic, and Kafka's command."""

    def __init__(self, cluster: Any) -> None:
        self.broker = cluster.brokers[0]
        try:
            self._tools = JavaTools(ensure_kafka(), cluster.bootstrap)
        except KafkaUnavailableError as error:
            missing(str(error))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(DEADLINE_S)
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": "id",
                "transaction.timeout.ms": 600_000,
                "log_level": 2,
            }
        )
        self.producer.init_transactions(DEADLINE_S)
        self.producer.begin_transaction()
        for index in range(2):
            self.producer.produce("t", b"a", partition=index)
        assert self.producer.flush(DEADLINE_S) == 0

    def run(self, *arguments: str) -> list[dict[str, str]]:
        output = self._tools.run("kafka-transactions", *arguments)
        return rows(output) if output.strip() else []

    def find_hanging(self) -> set[str]:
        return {row["Partition"] for row in self.run("find-hanging", "--topic", "t", *AT_ONCE)}

    def start_offset(self, index: int) -> str:
        (row,) = self.run("describe-producers", "--topic", "t", "--partition", str(index))
        return row["CurrentTransactionStartOffset"]


@pytest.fixture
def transactions(make_cluster: Callable[..., Any]) -> Transactions:
    return Transactions(make_cluster(settings={"transaction.state.log.num.partitions": "2"}))


def test_a_transaction_is_listed_and_described_and_does_not_hang(
    transactions: Transactions,
) -> None:
    (listed,) = transactions.run("list")
    assert (listed["TransactionalId"], listed["TransactionState"]) == ("id", "Ongoing")
    (described,) = transactions.run("describe", "--transactional-id", "id")
    assert described["TransactionState"] == "Ongoing"
    assert set(described["TopicPartitions"].split(",")) == {"t-0", "t-1"}
    assert transactions.start_offset(0) == "0"
    assert transactions.find_hanging() == set()
    transactions.producer.commit_transaction(DEADLINE_S)
    (listed,) = transactions.run("list")
    assert listed["TransactionState"] in ("PrepareCommit", "CompleteCommit")


def test_a_transaction_whose_coordinator_has_forgotten_it_is_found_and_aborted(
    transactions: Transactions,
) -> None:
    """An administrator has removed the only replica of the transactions' topic."""
    broker = transactions.broker
    broker.stop()
    for log in broker.data.glob("__transaction_state-*"):
        shutil.rmtree(log)
    broker.start()
    assert transactions.run("list") == []
    assert transactions.find_hanging() == {"0", "1"}
    abort = ("abort", "--topic", "t", "--partition")
    transactions.run(*abort, "0", "--start-offset", "0")
    assert transactions.find_hanging() == {"1"}
    assert transactions.start_offset(0) == "None"
    (row,) = transactions.run("describe-producers", "--topic", "t", "--partition", "1")
    explicit = (
        *("--producer-id", row["ProducerId"], "--producer-epoch", row["ProducerEpoch"]),
        *("--coordinator-epoch", "0"),
    )
    transactions.run(*abort, "1", *explicit)
    assert transactions.find_hanging() == set()
