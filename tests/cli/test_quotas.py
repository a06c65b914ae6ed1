"""Quotas of a real cluster: set by Kafka's tools and `fairlead quota`, felt by real clients."""

import contextlib
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from local_cluster import Cli, take_cluster_ports
from processor_wait import Stopwatch
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools, ToolFailedError
from fairlead_bench.peers.kafka_distribution import ensure_kafka

DEADLINE_S = 60.0
OPEN_S = 1.5
CLOSED_S_MAX = 3.0
WINDOWS = 3
"""Instead of 11, so that what a quiet client may use at once is two seconds of its rate."""
RATE = 400_000
SIZE = 10_000
# Who writes as fast as he may is muted and let go by turns, which come round once in twice as long
# as the quota looks back. Only over whole rounds is his rate what he is allowed.
ROUNDS_S = 2 * 2 * WINDOWS


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("quotas") / "data", *take_cluster_ports())
    try:
        outcome = cli.up("--brokers", "1", "--set", f"quota.window.num={WINDOWS}")
        assert outcome.code == 0, outcome
        cli.ok("topic", "create", "t")
        yield cli
    finally:
        cli.close()


@pytest.fixture
def tools(cli: Cli) -> JavaTools:
    return JavaTools(ensure_kafka(), f"127.0.0.1:{cli.port}")


def listed(cli: Cli) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    return {
        tuple(each["entity"].items()): each["quotas"]
        for each in cli.ok("quota", "list", "-o", "json").json
    }


class Writer:
    """A producer that writes as fast as it may, in a thread; `written` is what is acknowledged."""

    def __init__(self, cli: Cli, client_id: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{cli.port}",
                "client.id": client_id,
                "batch.size": 5 * SIZE,
                "queue.buffering.max.messages": 100,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self.written = 0
        self.errors: list[KafkaError] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.purge(in_flight=False)

    def _write(self) -> None:
        value = b"v" * SIZE
        while not self._is_over.is_set():
            try:
                self._producer.produce("t", value, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.02)
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self.written += SIZE
        else:
            self.errors.append(error)

    def rate(self, seconds: float) -> float:
        """Bytes a second, from now on."""
        before, begun = self.written, time.monotonic()
        time.sleep(seconds)
        return (self.written - before) / (time.monotonic() - begun)


def test_a_producer_keeps_to_its_quota_and_a_neighbour_to_none(cli: Cli) -> None:
    cli.ok("quota", "set", "--client-id", "slow", f"producer_byte_rate={RATE}")
    with Writer(cli, "slow") as slow, Writer(cli, "free") as free:
        wait_until(lambda: slow.written > 2 * RATE, deadline_s=DEADLINE_S)
        before = free.written
        rate = slow.rate(ROUNDS_S)
        assert 0.8 * RATE <= rate <= 1.2 * RATE
        assert (free.written - before) / ROUNDS_S > 10 * RATE, "nobody else is held back"
        # Another quota holds at once, also for who waits.
        cli.ok("quota", "set", "--client-id", "slow", f"producer_byte_rate={100 * RATE}")
        more = slow.written + 10 * RATE
        wait_until(lambda: slow.written > more, deadline_s=5)
        cli.ok("quota", "remove", "--client-id", "slow")
        more = slow.written + 10 * RATE
        wait_until(lambda: slow.written > more, deadline_s=5)
        assert not slow.errors + free.errors
    assert listed(cli) == {}


def test_a_consumer_keeps_to_its_quota(cli: Cli) -> None:
    with Writer(cli, "filler") as filler:
        wait_until(lambda: filler.written > 20 * RATE, deadline_s=DEADLINE_S)
    cli.ok("quota", "set", "--default-client-id", f"consumer_byte_rate={RATE}")
    try:
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{cli.port}",
                "client.id": "reader",
                "group.id": "g",
                "log_level": 0,
                "fetch.message.max.bytes": 5 * SIZE,
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])

        def read(seconds: float) -> float:
            size, begun = 0, time.monotonic()
            while time.monotonic() - begun < seconds:
                message = consumer.poll(0.1)
                if message is not None:
                    assert message.error() is None
                    size += len(message.value())
            return size / (time.monotonic() - begun)

        read(4)
        rate = read(ROUNDS_S)
        consumer.close()
        assert 0.7 * RATE <= rate <= 1.2 * RATE
    finally:
        cli.ok("quota", "remove", "--default-client-id")


@pytest.mark.java
def test_the_perf_test_of_kafka_reports_the_rate_of_its_quota(cli: Cli, tools: JavaTools) -> None:
    tools.run(
        "kafka-configs",
        *("--alter", "--entity-type", "users", "--entity-name", "ANONYMOUS"),
        *("--entity-type", "clients", "--entity-default"),
        *("--add-config", f"producer_byte_rate={RATE}"),
    )
    try:
        seconds = 12
        count = RATE * seconds // SIZE
        report = tools.run(
            "kafka-producer-perf-test",
            *("--topic", "t", "--num-records", str(count), "--record-size", str(SIZE)),
            *("--throughput", "-1", "--print-metrics"),
            *("--command-property", "batch.size=50000"),
        )
        told = re.findall(
            r"produce-throttle-time-max[^:]*:\{client-id=[^}]*\}\s*:\s*([0-9.]+)", report
        )
        assert max(map(float, told)) > 0, report
        took_s = count * SIZE / (float(re.findall(r"\(([0-9.]+) MB/sec\)", report)[-1]) * 1024**2)
        # Two seconds of the rate may be used at once.
        assert 0.8 * (seconds - WINDOWS) <= took_s <= 1.3 * seconds
    finally:
        tools.run(
            "kafka-configs",
            *("--alter", "--entity-type", "users", "--entity-name", "ANONYMOUS"),
            *("--entity-type", "clients", "--entity-default"),
            *("--delete-config", "producer_byte_rate"),
        )
    assert listed(cli) == {}


@pytest.mark.java
def test_kafka_configs_alters_and_describes_every_entity(cli: Cli, tools: JavaTools) -> None:
    def alter(*entity: str, change: tuple[str, str]) -> None:
        tools.run("kafka-configs", "--alter", *entity, *change)

    def describe(*entity: str) -> str:
        return tools.run("kafka-configs", "--describe", *entity)

    alice = ("--entity-type", "users", "--entity-name", "alice b/%")
    anybody = ("--entity-type", "users", "--entity-default")
    app = ("--entity-type", "clients", "--entity-name", "app")
    host = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    every_host = ("--entity-type", "ips", "--entity-default")
    add, alices = "--add-config", (("user", "alice b/%"),)
    alter(*alice, change=(add, "producer_byte_rate=1024,consumer_byte_rate=2048"))
    alter(*alice, *app, change=(add, "request_percentage=12.5"))
    alter(*anybody, change=(add, "controller_mutation_rate=0.5"))
    alter(*host, change=(add, "connection_creation_rate=2000"))
    alter(*every_host, change=(add, "connection_creation_rate=1000"))
    assert listed(cli) == {
        alices: {"producer_byte_rate": 1024, "consumer_byte_rate": 2048},
        (("user", "alice b/%"), ("client-id", "app")): {"request_percentage": 12.5},
        (("user", None),): {"controller_mutation_rate": 0.5},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 2000},
        (("ip", None),): {"connection_creation_rate": 1000},
    }
    said = describe(*alice)
    assert "producer_byte_rate=1024" in said
    assert "consumer_byte_rate=2048" in said
    hosts = describe("--entity-type", "ips")
    assert "connection_creation_rate=1000" in hosts
    assert "connection_creation_rate=2000" in hosts
    alter(*alice, change=("--delete-config", "producer_byte_rate"))
    assert listed(cli)[alices] == {"consumer_byte_rate": 2048}
    with pytest.raises(ToolFailedError, match="InvalidRequestException"):
        alter(*alice, change=(add, "producer_byte_rate=0"))
    for entity in (
        ("--user", "alice b/%"),
        ("--user", "alice b/%", "--client-id", "app"),
        ("--default-user",),
        ("--ip", "10.0.0.1"),
        ("--default-ip",),
    ):
        cli.ok("quota", "remove", *entity)
    assert listed(cli) == {}


@pytest.mark.java
def test_who_makes_too_many_partitions_is_refused(cli: Cli, tools: JavaTools) -> None:
    cli.ok("quota", "set", "--user", "ANONYMOUS", "controller_mutation_rate=1")
    try:
        make = ("kafka-topics", "--create", "--topic")
        tools.run(*make, "first", "--partitions", "40")
        with pytest.raises(ToolFailedError, match="ThrottlingQuotaExceeded"):
            tools.run(*make, "second", "--partitions", "1")
        with urllib.request.urlopen(f"http://127.0.0.1:{cli.http_port}/metrics") as page:
            assert 'fairlead_throttles_total{quota="controller_mutation"}' in page.read().decode()
        cli.ok("quota", "set", "--user", "ANONYMOUS", "controller_mutation_rate=100")
        tools.run(*make, "second", "--partitions", "1")
    finally:
        cli.ok("quota", "remove", "--user", "ANONYMOUS")


def test_an_address_that_connects_too_often_is_turned_away(cli: Cli) -> None:
    # An address that nobody else has: clients of tests before this one may try again and again.
    address = "127.0.0.2"
    cli.ok("quota", "set", "--ip", address, "connection_creation_rate=5")

    def is_closed(sock: socket.socket, within_s: float) -> bool:
        """Tell whether the broker has ended a connection on which nothing was said."""
        sock.settimeout(within_s)
        try:
            return sock.recv(1) == b""
        except TimeoutError:
            return False

    # Two seconds of the rate are let in at once; those who come too often are closed within one.
    (broker,) = cli.status()["brokers"]
    stopwatch = Stopwatch(broker["pid"])
    with contextlib.ExitStack() as stack:
        burst = [
            stack.enter_context(
                socket.create_connection(("127.0.0.1", cli.port), source_address=(address, 0))
            )
            for _ in range(30)
        ]
        assert all(is_closed(sock, DEADLINE_S) for sock in burst[20:])
        assert stopwatch.elapsed_s() < CLOSED_S_MAX
        assert not is_closed(burst[0], OPEN_S)
    cli.ok("quota", "remove", "--ip", address)
    assert listed(cli) == {}


def test_bad_input_is_named(cli: Cli) -> None:
    for arguments, said in (
        (("request_percentage=1",), "say whose"),
        (("--user", "a", "--default-user", "request_percentage=1"), "not both"),
        (("--user", "a", "--ip", "10.0.0.1", "request_percentage=1"), "by itself"),
        (("--ip", "host", "connection_creation_rate=1"), "not an IP address"),
        (("--user", "a", "connection_creation_rate=1"), "there are consumer_byte_rate"),
        (("--user", "a", "producer_byte_rate=-1"), "greater than 0"),
        (("--user", "a", "producer_byte_rate=many"), "not a number"),
        (("--user", "a", "producer_byte_rate"), "KEY=VALUE"),
    ):
        outcome = cli("quota", "set", *arguments)
        assert outcome.code == 2, outcome
        assert said in outcome.err
    missing = cli("quota", "remove", "--user", "a", "producer_byte_rate")
    assert (missing.code, missing.err.strip()) == (1, "user a has no producer_byte_rate.")


def test_quotas_hold_after_a_restart_of_everything(cli: Cli) -> None:
    cli.ok("quota", "set", "--client-id", "slow", f"producer_byte_rate={RATE}")
    cli.ok("down")
    outcome = cli.up("--brokers", "1", "--set", f"quota.window.num={WINDOWS}")
    assert outcome.code == 0, outcome
    assert listed(cli) == {(("client-id", "slow"),): {"producer_byte_rate": RATE}}
    with Writer(cli, "slow") as slow:
        wait_until(lambda: slow.written > 2 * RATE, deadline_s=DEADLINE_S)
        assert slow.rate(5) <= 1.25 * RATE
