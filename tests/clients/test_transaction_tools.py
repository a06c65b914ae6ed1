"""Transactions as an administrator sees and ends them: Kafka's tools and kcat."""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from needed_tools import need
from transactional_clients import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ConfluentProducer,
    read_confluent,
)
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools

MakeTopic = Callable[..., str]
KCAT_TIMEOUT_S = 60


def new_id(purpose: str) -> str:
    return f"{purpose}-{time.monotonic_ns()}"


def row_of(output: str, *wanted: str) -> list[str]:
    """The only line of a table that has these words in it."""
    rows = [line.split() for line in output.splitlines()]
    found = [row for row in rows if all(word in row for word in wanted)]
    assert len(found) == 1, output
    return found[0]


def open_transaction(bootstrap: str, name: str, topic: str, *values: bytes) -> ConfluentProducer:
    producer = ConfluentProducer(bootstrap, name, 600_000)
    producer.begin()
    for value in values:
        producer.send(topic, value)
    producer.flush()
    return producer


@pytest.mark.java
def test_an_open_transaction_is_listed_and_described(
    tools: JavaTools, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, name = make_topic("tool-open"), new_id("open")
    producer = open_transaction(bootstrap, name, topic, b"1", b"2")
    listed = row_of(tools.run("kafka-transactions", "list"), name)
    assert listed[-1] == "Ongoing"
    described = tools.run("kafka-transactions", "describe", "--transactional-id", name)
    assert f"{topic}-0" in row_of(described, name, "Ongoing")
    place = ("--topic", topic, "--partition", "0")
    header, row = tools.run("kafka-transactions", "describe-producers", *place).splitlines()
    assert header.split()[0] == "ProducerId"
    assert row.split()[-1] == "0", "the first offset of the open transaction"
    hanging = tools.run("kafka-transactions", "find-hanging", "--topic", topic)
    assert name not in hanging
    producer.commit()

    def state() -> str:
        return row_of(tools.run("kafka-transactions", "list"), name)[-1]

    wait_until(lambda: state() == "CompleteCommit")
    row = tools.run("kafka-transactions", "describe-producers", *place).splitlines()[1]
    assert row.split()[-1] == "None"


@pytest.mark.java
def test_a_transaction_is_ended_by_its_id(
    tools: JavaTools, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, name = make_topic("tool-forced"), new_id("forced")
    open_transaction(bootstrap, name, topic, b"never")
    tools.run("kafka-transactions", "forceTerminateTransaction", "--transactionalId", name)
    other = open_transaction(bootstrap, new_id("other"), topic, b"other")
    other.commit()
    wait_until(lambda: read_confluent(bootstrap, topic, READ_COMMITTED) == [b"other"])


@pytest.mark.java
def test_a_partition_is_freed_of_a_transaction(
    tools: JavaTools, bootstrap: str, make_topic: MakeTopic
) -> None:
    """What an administrator does with one that hangs: the leader writes the marker."""
    topic = make_topic("tool-abort")
    open_transaction(bootstrap, new_id("hanging"), topic, b"never")
    place = ("--topic", topic, "--partition", "0")
    tools.run("kafka-transactions", "abort", *place, "--start-offset", "0")
    other = open_transaction(bootstrap, new_id("other"), topic, b"other")
    other.commit()
    wait_until(lambda: read_confluent(bootstrap, topic, READ_COMMITTED) == [b"other"])
    assert read_confluent(bootstrap, topic, READ_UNCOMMITTED) == [b"never", b"other"]


@pytest.mark.java
def test_the_performance_test_writes_transactions(
    tools: JavaTools, bootstrap: str, make_topic: MakeTopic, log_directory: Path
) -> None:
    topic = make_topic("tool-perf")
    output = tools.run(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "2000", "--record-size", "100"),
        # For two seconds: one slow commit leaves time for others.
        *("--throughput", "1000", "--transactional-id", new_id("perf")),
        *("--transaction-duration-ms", "50"),
    )
    assert "2000 records sent" in output
    wait_until(lambda: len(read_confluent(bootstrap, topic, READ_COMMITTED)) == 2000)
    segment = next((log_directory / f"{topic}-0").glob("*.log"))
    dumped = tools.run("kafka-dump-log", "--deep-iteration", "--files", str(segment))
    assert dumped.count("endTxnMarker: COMMIT") >= 3
    assert "isTransactional: true" in dumped


@pytest.mark.java
def test_kafka_reads_the_records_of_the_coordinator(
    tools: JavaTools, bootstrap: str, make_topic: MakeTopic, log_directory: Path
) -> None:
    topic, name = make_topic("tool-decoder"), new_id("decoded")
    open_transaction(bootstrap, name, topic, b"1").commit()

    def states() -> list[str]:
        files = ",".join(str(path) for path in log_directory.glob("__transaction_state-*/*.log"))
        decode = ("--transaction-log-decoder", "--deep-iteration", "--files", files)
        lines = tools.run("kafka-dump-log", *decode).splitlines()
        found = [
            re.search(r'"?transactionStatus"?\W+(\w+)', line) for line in lines if name in line
        ]
        return [match[1] for match in found if match]

    wait_until(lambda: len(states()) >= 4)
    # Empty, Ongoing, PrepareCommit, CompleteCommit.
    assert states() == ["0", "1", "2", "4"]


@pytest.mark.java
def test_the_console_consumer_reads_what_is_committed(
    tools: JavaTools, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = mixed_topic(bootstrap, make_topic)
    for isolation_level, expected in (
        (READ_COMMITTED, ["kept", "again"]),
        (READ_UNCOMMITTED, ["kept", "dropped", "again"]),
    ):
        output = tools.run(
            "kafka-console-consumer",
            *("--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--isolation-level", isolation_level, "--max-messages", str(len(expected))),
        )
        assert output.split() == expected


def mixed_topic(bootstrap: str, make_topic: MakeTopic) -> str:
    topic = make_topic("mixed")
    producer = open_transaction(bootstrap, new_id("mixed"), topic, b"kept")
    producer.commit()
    producer.begin()
    producer.send(topic, b"dropped")
    producer.flush()
    producer.abort()
    producer.begin()
    producer.send(topic, b"again")
    producer.commit()
    wait_until(lambda: read_confluent(bootstrap, topic, READ_COMMITTED) == [b"kept", b"again"])
    return topic


def run_kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> list[bytes]:
    need("kcat")
    command = ["kcat", "-q", "-b", bootstrap, *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, timeout=KCAT_TIMEOUT_S, check=True
    )
    return done.stdout.splitlines()


def test_kcat_reads_what_is_committed(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = mixed_topic(bootstrap, make_topic)
    read = ("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e")
    committed = run_kcat(bootstrap, *read, "-X", "isolation.level=read_committed")
    assert committed == [b"kept", b"again"]
    everything = run_kcat(bootstrap, *read, "-X", "isolation.level=read_uncommitted")
    assert everything == [b"kept", b"dropped", b"again"]


def test_kcat_writes_one_transaction(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("kcat")
    write = ("-P", "-t", topic, "-X", f"transactional.id={new_id('kcat')}")
    run_kcat(bootstrap, *write, stdin=b"one\ntwo\n")
    wait_until(lambda: read_confluent(bootstrap, topic, READ_COMMITTED) == [b"one", b"two"])
