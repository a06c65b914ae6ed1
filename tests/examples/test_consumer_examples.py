"""The consumer examples, run as a reader runs them, and killed where a promise is about crashes.

What they promise is checked against the log as another client reads it, without a group.
`FAIRLEAD_CLIENTS_AGAINST=kafka` runs the same tests against Apache Kafka.
"""

import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from example_process import EXAMPLES, ROOT, ExampleProcess
from kafka import KafkaConsumer
from kill_at_line import lines_of

for folder in (ROOT / "benchmarks", ROOT / "examples" / "flights"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from dataset import TABLES, read_rows  # noqa: E402

from fairlead_bench.fairlead_peer import FairleadPeer  # noqa: E402
from fairlead_bench.kafka_distribution import ensure_kafka  # noqa: E402
from fairlead_bench.kafka_peer import KafkaPeer  # noqa: E402
from fairlead_bench.peer import wait_until_ready  # noqa: E402

FLIGHTS = 12_000
PARTITIONS = 6
KAFKA_PYTHON_WARNING = "ignore:(read|open)_text is deprecated:DeprecationWarning"
QUICK_GROUPS = {
    # A group is dealt at its first join, and a dead member is noticed within a second.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings(KAFKA_PYTHON_WARNING)]

Run = Callable[..., ExampleProcess]
Place = tuple[int, int]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadPeer | KafkaPeer]:
    """One broker with groups that settle quickly."""
    data = tmp_path_factory.mktemp("cluster")
    is_kafka = os.environ.get("FAIRLEAD_CLIENTS_AGAINST") == "kafka"
    with (
        KafkaPeer(ensure_kafka(), data, QUICK_GROUPS)
        if is_kafka
        else FairleadPeer(data, QUICK_GROUPS)
    ) as started:
        started.start()
        wait_until_ready(started)
        yield started


class Log(NamedTuple):
    """A topic, and what it holds, as a client without a group reads it."""

    topic: str
    records: dict[Place, dict[str, Any]]


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def read_topic(bootstrap: str, topic: str, partitions: int) -> dict[Place, Any]:
    """Everything up to the present end, by place."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        places = [kafka.TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found = {}
        while any(consumer.position(at) < ends[at] for at in places):
            for records in consumer.poll(timeout_ms=1000).values():
                found.update({(r.partition, r.offset): json.loads(r.value) for r in records})
        return found
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def flights(broker: FairleadPeer | KafkaPeer) -> Log:
    """The first twelve thousand flights of 2013, loaded as examples/flights does."""
    create_topic(broker.bootstrap, "flights", PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "partitioner": "murmur2_random"}
    )
    for row in islice(read_rows(TABLES["flights"]), FLIGHTS):
        producer.produce("flights", row.value, row.key, timestamp=row.timestamp_ms)
    assert producer.flush(20) == 0
    records = read_topic(broker.bootstrap, "flights", PARTITIONS)
    assert len(records) == FLIGHTS
    return Log("flights", records)


@pytest.fixture
def run(broker: FairleadPeer | KafkaPeer, tmp_path: Path) -> Iterator[Run]:
    """Starts examples in the test's folder, in which their files lie."""
    started: list[ExampleProcess] = []

    def start(name: str, *arguments: str, kill_at: tuple[int, int] | None = None) -> ExampleProcess:
        every = ("--bootstrap", broker.bootstrap)
        started.append(ExampleProcess(tmp_path, name, *every, *arguments, kill_at=kill_at))
        return started[-1]

    yield start
    for example in started:
        example.clean_up()


def lines(path: Path) -> list[str]:
    """The whole lines of a file that may not be there yet."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def has_grown(path: Path, by: int) -> Callable[[], bool]:
    goal = len(lines(path)) + by
    return lambda: len(lines(path)) >= goal


def assert_order(places: list[Place]) -> None:
    """Offsets rise within each partition."""
    for number in range(PARTITIONS):
        offsets = [offset for partition, offset in places if partition == number]
        assert all(earlier < later for earlier, later in pairwise(offsets)), number


def test_at_most_once_never_sends_a_text_twice(flights: Log, run: Run, tmp_path: Path) -> None:
    texts, batch, kills = tmp_path / "texts.log", 100, 5
    # Every flight is worth a text: none may hide behind being on time.
    options = ("--group", "texts-killed", "--member", "one", "--reset", "earliest")
    options = (*options, "--late-minutes", "-9999", "--batch", str(batch), "--work-ms", "0.05")
    for _ in range(kills):
        example = run("at_most_once", *options)
        example.until(has_grown(texts, by=1030))
        example.kill()
    example = run("at_most_once", *options)
    example.until(has_grown(texts, by=500))
    example.stop(signal.SIGINT)
    run("at_most_once", *options, "--idle-s", "1").succeed()

    sent = [line.split(" ", 2) for line in lines(texts)]
    places = [(int(partition), int(offset)) for partition, offset, _ in sent]
    assert max(Counter(places).values()) == 1
    assert_order(places)
    for place, (_, _, text) in zip(places, sent, strict=True):
        flight = flights.records[place]
        assert f"{flight['carrier']} {flight['flight']} to {flight['dest']}" in text
    # What it says a crash costs, and a clean stop costs nothing.
    assert FLIGHTS - kills * batch <= len(places) < FLIGHTS


def test_at_least_once_leaves_no_flight_out(flights: Log, run: Run, tmp_path: Path) -> None:
    archive, batch, kills = tmp_path / "flights.jsonl", 200, 5
    options = ("--group", "archive-killed", "--member", "one", "--batch", str(batch))
    for _ in range(kills):
        example = run("at_least_once", *options, "--work-ms", "5")
        example.until(has_grown(archive, by=1000))
        example.kill()
    with archive.open("a") as out:
        out.write('{"partition": 0, "off')  # as if the last kill had cut a line short
    run("at_least_once", *options, "--idle-s", "1").succeed()

    counts: Counter[Place] = Counter()
    torn = 0
    for line in lines(archive):
        try:
            entry = json.loads(line)
        except ValueError:
            torn += 1
            continue
        place = entry["partition"], entry["offset"]
        assert entry["flight"] == flights.records[place]
        counts[place] += 1
    assert counts.keys() == flights.records.keys()
    assert_order(list(counts))
    assert counts.total() - FLIGHTS <= kills * batch
    assert torn == 1


def test_at_least_once_doubles_nothing_when_members_come_and_go(
    flights: Log, run: Run, tmp_path: Path
) -> None:
    """Two share the work, one is stopped in order, the other takes over: no crash, no double."""
    options = ("--group", "archive-shared", "--batch", "100", "--work-ms", "10")
    files = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    first, second = (run("at_least_once", *options, "--out", path.name) for path in files)
    second.until(has_grown(files[1], by=1000))
    second.stop()
    first.until(lambda: sum(len(lines(path)) for path in files) >= FLIGHTS)
    first.stop()
    entries = [json.loads(line) for path in files for line in lines(path)]
    counts = Counter((entry["partition"], entry["offset"]) for entry in entries)
    assert counts.keys() == flights.records.keys()
    assert counts.total() == FLIGHTS


def expected_totals(records: dict[Place, Any]) -> dict[str, tuple[int, int, int]]:
    """Flights, cancelled ones and minutes of delay per airline."""
    totals: dict[str, tuple[int, int, int]] = {}
    for flight in records.values():
        count, cancelled, minutes = totals.get(flight["carrier"], (0, 0, 0))
        delay = flight["dep_delay"]
        totals[flight["carrier"]] = (
            count + 1,
            cancelled + (delay is None),
            minutes + (delay or 0),
        )
    return totals


def read_totals(path: Path) -> dict[str, tuple[int, int, int]]:
    with closing(sqlite3.connect(path)) as db:
        return {carrier: tuple(sums) for carrier, *sums in db.execute("SELECT * FROM totals")}


def test_effectively_once_is_exact_when_killed_at_any_of_its_lines(
    flights: Log, run: Run, tmp_path: Path
) -> None:
    script = EXAMPLES / "effectively_once_sqlite.py"
    options = ("--group", "totals-killed", "--member", "one", "--batch", "100")
    chosen = lines_of(script, {"take", "count", "run", "go_on"})
    killed = 0
    for line in chosen:
        # The second time, so that something was stored before; what is reached once or never
        # ends by itself, and does its share.
        example = run("effectively_once_sqlite", *options, "--idle-s", "1", kill_at=(line, 2))
        killed += example.wait() == -signal.SIGKILL
    run("effectively_once_sqlite", *options, "--idle-s", "1").succeed()
    assert killed >= 20
    assert read_totals(tmp_path / "totals.db") == expected_totals(flights.records)
