"""The consumer examples, run as a reader runs them, and killed where a promise is about crashes.

What they promise is checked against the log as another client reads it, without a group.
`FAIRLEAD_CLIENTS_AGAINST=kafka` runs the same tests against Apache Kafka.
"""

import json
import os
import re
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from example_process import EXAMPLES, ROOT, ExampleProcess
from kafka import KafkaConsumer
from marked_transactions import wait_until_marked
from needed_tools import need

for folder in (ROOT / "benchmarks", ROOT / "examples" / "flights"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from dataset import TABLES, read_rows  # noqa: E402

from fairlead_bench.peers.fairlead_peer import FairleadPeer  # noqa: E402
from fairlead_bench.peers.kafka_distribution import ensure_kafka  # noqa: E402
from fairlead_bench.peers.kafka_peer import KafkaPeer  # noqa: E402
from fairlead_bench.peers.peer import wait_until_ready  # noqa: E402

FLIGHTS = 12_000
PARTITIONS = 6
MEMBER_GONE_S = 60
"""More than a session lasts."""
KAFKA_PYTHON_WARNING = "ignore:(read|open)_text is deprecated:DeprecationWarning"
IDLE = ("--idle-s", "4")
"""Longer than a member that has its partitions ever waits for the first record of many."""
QUICK_GROUPS = {
    # Members that are started together are dealt their shares together, also where one of them
    # is slow to start; a dead member is noticed within a second.
    "group.initial.rebalance.delay.ms": "1000",
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
    # The flights are from 2013: any other retention would remove them.
    new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(60)


def read_topic(bootstrap: str, topic: str, partitions: int) -> dict[Place, Any]:
    """Everything that is committed now, by place."""
    wait_until_marked(bootstrap)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
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
    assert producer.flush(60) == 0
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


@pytest.fixture
def run_java(tmp_path: Path) -> Iterator[Run]:
    """Starts an example in Java; it takes its arguments in order."""
    need("java")
    need("maven")
    started: list[ExampleProcess] = []

    def start(name: str, *arguments: str) -> ExampleProcess:
        started.append(ExampleProcess(tmp_path, name, *arguments))
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


def has_reached(count: Callable[[], int], goal: int) -> bool:
    return count() >= goal


def test_at_most_once_never_sends_a_text_twice(flights: Log, run: Run, tmp_path: Path) -> None:
    texts, batch, kills = tmp_path / "texts.log", 100, 5
    # Every flight is worth a text: none may hide behind being on time.
    member = ("--group", "texts-killed", "--member", "one", "--reset", "earliest")
    options = (*member, "--late-minutes", "-9999", "--batch", str(batch), "--work-ms", "0.05")
    for _ in range(kills):
        example = run("at_most_once", *options)
        example.until(has_grown(texts, by=1030))
        example.kill()
    example = run("at_most_once", *options)
    example.until(has_grown(texts, by=500))
    example.stop(signal.SIGINT)
    run("at_most_once", *options, *IDLE).succeed()

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
    run("at_least_once", *options, *IDLE).succeed()

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


def test_effectively_once_is_exact_when_killed_before_any_of_its_lines(
    flights: Log, run: Run, tmp_path: Path
) -> None:
    options = ("--member", "one", "--batch", "100")
    dry = (*options, "--group", "totals-dry", "--db", "dry.db", *IDLE)
    told = run("effectively_once_sqlite", *dry, kill_at=(0, 0)).succeed()
    reached = json.loads(told.splitlines()[-1])
    # The second time that a process reaches it: the first batch is stored by then. What is
    # reached once is set up before, or torn down after, the work. What is reached seldom, at the
    # end of the log, comes last: nothing is left to be counted after it.
    often_first = sorted(reached.items(), key=lambda item: -item[1])
    repeated = [int(line) for line, hits in often_first if hits >= 2]
    assert len(repeated) >= 20
    for line in repeated:
        killed = run("effectively_once_sqlite", *options, "--group", "totals", kill_at=(line, 2))
        assert killed.wait() == -signal.SIGKILL, killed.text
    run("effectively_once_sqlite", *options, "--group", "totals", *IDLE).succeed()
    for database in ("dry.db", "totals.db"):
        assert read_totals(tmp_path / database) == expected_totals(flights.records)


def test_effectively_once_is_exact_while_members_are_killed_and_replaced(
    flights: Log, run: Run, tmp_path: Path
) -> None:
    """Two share partitions and the database; each is killed in turn and not missed for long."""

    def count_flights() -> int:
        try:
            return sum(count for count, _, _ in read_totals(tmp_path / "totals.db").values())
        except sqlite3.OperationalError:
            return 0  # neither of them has made its tables

    def start(name: str) -> ExampleProcess:
        options = ("--group", "totals-shared", "--member", name, "--batch", "20")
        return run("effectively_once_sqlite", *options)

    members = {name: start(name) for name in ("one", "two")}
    for goal, name in zip(range(1000, 9000, 2000), ("one", "two") * 2, strict=True):
        members[name].until(partial(has_reached, count_flights, goal))
        members[name].kill()
        members[name] = start(name)
    members["one"].until(lambda: count_flights() >= FLIGHTS)
    for member in members.values():
        member.stop()
    assert read_totals(tmp_path / "totals.db") == expected_totals(flights.records)


def test_global_order_is_the_same_for_all_and_survives_a_takeover(
    broker: FairleadPeer | KafkaPeer, run: Run, tmp_path: Path
) -> None:
    """Two runways write, a board and its stand-by read, another group reads as well."""
    board, other = tmp_path / "departures.log", tmp_path / "other.log"
    for name in ("east", "west"):
        run("global_order", "write", "--name", name, "--count", "1500", "--pause-ms", "1")
    quick = ("--session-timeout-ms", "4000")
    readers = [run("global_order", "read", *quick) for _ in range(2)]
    audit = run("global_order", "read", "--group", "audit", "--out", other.name)
    readers[0].until(has_grown(board, by=500))
    # Whichever of them works: killing the other would prove nothing, so the first goes first
    # without a word, its successor in order.
    readers[0].kill()
    readers.append(run("global_order", "read", *quick))
    readers[1].until(has_grown(board, by=500))
    readers[1].stop()
    for example in (readers[2], audit):
        example.until(lambda: {len(set(lines(board))), len(lines(other))} == {3000})
        example.stop()

    records = read_topic(broker.bootstrap, "departures", 1)
    in_log = [
        f"{offset} {value['runway']} {value['number']}"
        for (_, offset), value in sorted(records.items())
    ]
    assert lines(other) == in_log
    # A takeover may repeat a few; without these it is the same order.
    assert list(dict.fromkeys(lines(board))) == in_log
    for name in ("east", "west"):
        numbers = [int(line.split()[2]) for line in in_log if f" {name} " in line]
        assert numbers == list(range(1, 1501))


def test_global_order_refuses_a_topic_with_more_partitions(flights: Log, run: Run) -> None:
    refused = run("global_order", "read", "--topic", flights.topic)
    assert refused.wait() == 1
    assert "has 6 partitions; global order needs exactly one" in refused.text


def test_exactly_once_when_killed_before_any_line_of_its_transaction(
    flights: Log, broker: FairleadPeer | KafkaPeer, run: Run
) -> None:
    source = (EXAMPLES / "exactly_once.py").read_text().splitlines()
    begin = next(at for at, line in enumerate(source, 1) if line.startswith("def carry_over"))
    end = next(at for at, line in enumerate(source, 1) if line.startswith("def go_back"))
    options = ("--member", "one", "--batch", "200", *IDLE)
    dry = (*options, "--group", "delays-dry", "--out", "delays-dry")
    told = run("exactly_once", *dry, kill_at=(0, 0)).succeed()
    reached = {int(line): hits for line, hits in json.loads(told.splitlines()[-1]).items()}
    repeated = [line for line, hits in reached.items() if begin < line < end and hits >= 2]
    assert len(repeated) >= 8
    for line in repeated:
        killed = run("exactly_once", *options, kill_at=(line, 2))
        assert killed.wait() == -signal.SIGKILL, killed.text
    run("exactly_once", *options).succeed()
    for topic in ("delays-dry", "flight-delays"):
        assert_each_once(flights, broker.bootstrap, topic)


def assert_each_once(flights: Log, bootstrap: str, topic: str) -> None:
    """In partitions of the output by key: one result of each flight, in their order."""
    results = read_topic(bootstrap, topic, 3)
    places = [tuple(results[place]["from"]) for place in sorted(results)]
    assert Counter(places) == dict.fromkeys(flights.records, 1)
    for result in results.values():
        flight = flights.records[tuple(result["from"])]
        assert result["flight"] == f"{flight['carrier']} {flight['flight']}"
        assert result["minutes"] == flight["dep_delay"]
    last: dict[str, int] = {}
    for place in sorted(results):
        carrier = results[place]["flight"].split()[0]
        offset = results[place]["from"][1]
        assert last.get(carrier, -1) < offset
        last[carrier] = offset


def test_exactly_once_while_members_are_killed_and_replaced(
    flights: Log, broker: FairleadPeer | KafkaPeer, run: Run
) -> None:
    """Two share the work; with a batch this small there is always a transaction open."""
    options = ("--group", "delays-shared", "--out", "delays-shared", "--batch", "50")

    def count() -> int:
        return len(read_topic(broker.bootstrap, "delays-shared", 3))

    members = {name: run("exactly_once", *options, "--member", name) for name in ("one", "two")}
    for kills, name in enumerate(("one", "two", "one", "two"), 1):
        members[name].until(partial(has_reached, count, 1500 * kills))
        members[name].kill()
        members[name] = run("exactly_once", *options, "--member", name)
    for member in members.values():
        member.until(lambda: count() >= FLIGHTS)
        member.stop()
    run("exactly_once", *options, "--member", "one", *IDLE).succeed()
    assert_each_once(flights, broker.bootstrap, "delays-shared")


def test_exactly_once_in_java_while_it_is_killed(
    flights: Log, broker: FairleadPeer | KafkaPeer, run_java: Run
) -> None:
    create_topic(broker.bootstrap, "java-delays", 3)
    arguments = (broker.bootstrap, "flights", "java-delays", "java-delays", "one")

    def count() -> int:
        return len(read_topic(broker.bootstrap, "java-delays", 3))

    for kills in range(1, 4):
        example = run_java("ExactlyOnce.java", *arguments)
        example.until(partial(has_reached, count, 2500 * kills))
        example.kill()
    example = run_java("ExactlyOnce.java", *arguments)
    example.until(lambda: count() >= FLIGHTS)
    example.process.send_signal(signal.SIGTERM)
    assert example.wait() == 128 + signal.SIGTERM, example.text
    assert_each_once(flights, broker.bootstrap, "java-delays")


def test_several_groups_each_get_everything_and_share_inside(flights: Log, run: Run) -> None:
    wanted = ("--group", "billing:3", "--group", "audit:1", "--group", "crowd:8")
    told = run("several_groups", *wanted, "--idle-s", "10").succeed()
    groups = dict(re.findall(r"^group (\w+): (\d+) flights", told, re.MULTILINE))
    # Nobody left or died, so not even a double.
    assert groups == dict.fromkeys(("billing", "audit", "crowd"), str(FLIGHTS))
    members = re.findall(r"^(\w+)/\d+ \d+ flights, partitions \[(.*)\]$", told, re.MULTILINE)
    shares = {
        group: sorted(len(held.split()) for name, held in members if name == group)
        for group in groups
    }
    assert shares == {"billing": [2, 2, 2], "audit": [6], "crowd": [0, 0, 1, 1, 1, 1, 1, 1]}


def test_several_groups_without_a_cluster_say_so_in_a_line(tmp_path: Path) -> None:
    """With Python 3.11.2, as of Debian, this was a traceback."""
    example = ExampleProcess(tmp_path, "several_groups", "--bootstrap", "127.0.0.1:1")
    try:
        assert example.wait() == 1
        assert "No cluster answers at 127.0.0.1:1. Start one:  fairlead up" in example.text
        assert "Traceback" not in example.text
    finally:
        example.clean_up()


def test_rewind_repairs_what_was_done_since(flights: Log, run: Run, tmp_path: Path) -> None:
    """Afterwards every record since then is right, older ones are as they were, none is doubled."""
    since = datetime(2013, 1, 9, tzinfo=UTC)
    run("rewind_after_bug", "run", "--code", "1", *IDLE).succeed()
    working = run("rewind_after_bug", "run", "--code", "1")
    working.until(lambda: can_not_rewind(run))
    working.stop()
    rewind(run, since)
    repairing = run("rewind_after_bug", "run", "--code", "2")
    repairing.until(lambda: "NULL" in read_delays(tmp_path / "delays.db").values())
    repairing.stop()
    # A second rewind by mistake: some records are done for a third time, and nothing changes.
    rewind(run, since)
    told = run("rewind_after_bug", "run", "--code", "2", *IDLE).succeed()

    first = {
        number: min(
            offset
            for (partition, offset), flight in flights.records.items()
            if partition == number and datetime.fromisoformat(flight["time_hour"]) >= since
        )
        for number in {partition for partition, _ in flights.records}
    }
    expected = {
        (partition, offset): flight["dep_delay"] or 0
        if flight["dep_delay"] is not None or offset < first[partition]
        else "NULL"
        for (partition, offset), flight in flights.records.items()
    }
    assert read_delays(tmp_path / "delays.db") == expected
    assert "NULL" in expected.values(), "the bug never showed"
    assert f"of {FLIGHTS} rows" in told


def rewind(run: Run, since: datetime) -> None:
    """As soon as the members are gone: one that was told to stop while it joined may be last."""
    deadline = time.monotonic() + MEMBER_GONE_S
    while True:
        told = run("rewind_after_bug", "rewind", "--since", since.date().isoformat())
        if told.wait() == 0:
            return
        assert "Stop its members first" in told.text and time.monotonic() < deadline, told.text


def can_not_rewind(run: Run) -> bool:
    """Whether the group is at work; rewinding a group to where it begins anyway harms nothing."""
    refused = run("rewind_after_bug", "rewind", "--since", "2014-01-01")
    return refused.wait() == 1 and "Stop its members first" in refused.text


def read_delays(path: Path) -> dict[Place, int | str]:
    with closing(sqlite3.connect(path, timeout=30)) as db:
        rows = db.execute("SELECT partition, record_offset, ifnull(minutes, 'NULL') FROM delays")
        return {(partition, offset): minutes for partition, offset, minutes in rows}


def test_slow_consumer_stays_a_member_falls_behind_and_catches_up(
    broker: FairleadPeer | KafkaPeer, run: Run
) -> None:
    create_topic(broker.bootstrap, "slow", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    # One record takes longer than the group would wait for a poll.
    slow = run(
        "slow_consumer",
        *("--topic", "slow", "--max-poll-interval-s", "4", "--queue", "100"),
        *("--stall-s", "9"),
    )
    slow.until(lambda: "given 2 partitions" in slow.text)
    for number in range(1000):
        producer.produce("slow", json.dumps({"number": number}), str(number))
    assert producer.flush(60) == 0
    slow.until(lambda: "lag 1000\n" in slow.text)
    slow.until(lambda: slow.text.rpartition("lag ")[2] == "0\n")
    told = slow.stop()
    assert told.count("given 2 partitions") == 1
    assert "MAXPOLL" not in told
    assert told.index("paused") < told.index("resumed")
    in_hand = [int(count) for count in re.findall(r"(\d+) records in hand", told)]
    assert 100 < max(in_hand) <= 150  # the bound, and what one poll may bring


def test_a_burst_waits_in_the_log_and_latency_returns(
    broker: FairleadPeer | KafkaPeer, run: Run
) -> None:
    """The broker stands still in the middle of it, so that the producer has to wait."""
    example = run("burst", "--steady-s", "3", "--burst-s", "2", "--producer-queue", "100")
    example.until(lambda: "burst " in example.text)
    os.kill(broker.broker_pid, signal.SIGSTOP)
    try:
        time.sleep(0.5)  # half a second of standstill is the fault, not a wait for something
    finally:
        os.kill(broker.broker_pid, signal.SIGCONT)
    told = example.succeed()
    (sent, read, waits, queue) = map(
        int, re.findall(r"^sent (\d+) read (\d+) waits (\d+) queue (\d+)$", told, re.M)[0]
    )
    assert sent == read
    assert waits > 0
    assert queue <= 110  # it counts a few requests of the client's own as well
    seconds = re.findall(
        r"^(\w+) +sent +\d+  lag +(-?\d+)  latency +(\d+) ms  (\d+) MiB$", told, re.M
    )
    latencies = [int(latency) for _, _, latency, _ in seconds]
    memories = [int(memory) for _, _, _, memory in seconds]
    assert max(int(lag) for _, lag, _, _ in seconds) > 200
    assert min(latencies[latencies.index(max(latencies)) :]) < max(latencies) / 5
    assert memories[-1] - memories[0] <= 10
