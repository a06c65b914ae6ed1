"""Kafka Connect: a worker with exactly-once sources, killed; files in and out; MirrorMaker 2."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from connect_worker import BYTES, ConnectWorker, ensure_connect
from needed_tools import missing
from transactional_clients import READ_COMMITTED, READ_UNCOMMITTED, read_confluent
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError

pytestmark = [pytest.mark.java, pytest.mark.slow]
LINES = 300


@pytest.fixture(scope="module")
def group() -> str:
    return f"connect-{time.monotonic_ns()}"


@pytest.fixture(scope="module")
def only_worker(
    bootstrap: str, group: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectWorker]:
    """One for all tests: its start costs as much as a test."""
    try:
        ensure_connect()
    except KafkaUnavailableError as error:
        missing(str(error))
    made = ConnectWorker(bootstrap, tmp_path_factory.mktemp("connect"), group)
    yield made
    made.kill()


@pytest.fixture
def worker(only_worker: ConnectWorker) -> ConnectWorker:
    """It runs, also where the test before has killed it."""
    only_worker.ensure_started()
    return only_worker


def test_a_file_goes_through_a_topic_exactly_once_and_into_a_file(
    worker: ConnectWorker,
    tools: JavaTools,
    bootstrap: str,
    group: str,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic, source, sink = make_topic("connect"), tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [f"line {number}" for number in range(2 * LINES)]
    source.write_text("".join(f"{line}\n" for line in lines[:LINES]))
    worker.put(
        "lines-in",
        {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(source),
            "topic": topic,
            "exactly.once.support": "required",
        },
    )
    worker.put(
        "lines-out",
        {
            "connector.class": "FileStreamSink",
            "tasks.max": "1",
            "file": str(sink),
            "topics": topic,
        },
    )

    def written() -> list[str]:
        return [value.decode() for value in read_confluent(bootstrap, topic, READ_COMMITTED)]

    wait_until(lambda: len(written()) > 0, worker.last_words)
    worker.kill()
    with source.open("a") as more:
        more.write("".join(f"{line}\n" for line in lines[LINES:]))
    worker.start()

    def where_it_stands() -> str:
        states = worker.states("lines-in")
        return f"{len(written())} of {len(lines)}, {states}: {worker.last_words()}"

    wait_until(lambda: len(written()) >= len(lines), where_it_stands, deadline_s=90)
    assert written() == lines
    listed = tools.run("kafka-transactions", "list")
    assert any(line.startswith(f"{group}-lines-in-0") for line in listed.splitlines()), listed
    # A sink is at least once: after a kill it may repeat what it had not committed.
    wait_until(lambda: set(sink.read_text().splitlines()) == set(lines), worker.last_words)


def test_mirrormaker_copies_what_is_committed_exactly_once(
    worker: ConnectWorker, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    """From a cluster to itself: the copy has the source's alias before its name."""
    from confluent_kafka import Producer

    topic = make_topic("mirrored")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"to-{topic}", "log_level": 0}
    )
    producer.init_transactions(60)

    def write(first: int) -> None:
        for number in range(first, first + LINES):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number)
            producer.flush()
            if number % 10 == 9:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)

    write(0)
    worker.put(
        "mirror",
        {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "tasks.max": "1",
            "source.cluster.alias": "here",
            "target.cluster.alias": "there",
            "source.cluster.bootstrap.servers": bootstrap,
            "target.cluster.bootstrap.servers": bootstrap,
            "topics": topic,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "source.consumer.isolation.level": "read_committed",
            "exactly.once.support": "required",
            "key.converter": BYTES,
            "value.converter": BYTES,
        },
    )
    copy = f"here.{topic}"

    def copied(isolation_level: str = READ_COMMITTED) -> list[int]:
        try:
            return [int(value) for value in read_confluent(bootstrap, copy, isolation_level)]
        except KeyError:
            return []  # not made yet

    def expected(count: int) -> list[int]:
        return [number for number in range(count) if number % 10 != 9]

    wait_until(lambda: len(copied()) > 0, worker.last_words)
    worker.kill()
    write(LINES)
    worker.start()
    wait_until(lambda: len(copied()) >= len(expected(2 * LINES)), worker.last_words, deadline_s=120)
    assert copied() == expected(2 * LINES)
    assert all(number % 10 != 9 for number in copied(READ_UNCOMMITTED))
