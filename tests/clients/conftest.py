"""One live cluster for all client tests, and the clients.

`FAIRLEAD_CLIENTS_AGAINST=kafka` runs the same tests against Apache Kafka from Maven: what a real
broker fails is a fault of the test.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = "tests/clients/"
for folder in (PROJECT / "benchmarks", Path(__file__).parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from client_adapters import (  # noqa: E402
    AioKafka,
    Client,
    Confluent,
    JavaConsole,
    KafkaPython,
    Kcat,
    Rec,
)
from clients_under_test import CLIENT_NAMES, GROUP_SETTINGS  # noqa: E402
from compiled_programs import MissingError  # noqa: E402
from needed_tools import missing, need  # noqa: E402
from node_programs import install_node_programs  # noqa: E402
from started_members import DEADLINE_S, Members  # noqa: E402

from fairlead_bench.peers.fairlead_peer import FairleadPeer  # noqa: E402
from fairlead_bench.peers.java_tools import JavaTools  # noqa: E402
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka  # noqa: E402
from fairlead_bench.peers.kafka_peer import KafkaPeer  # noqa: E402
from fairlead_bench.peers.peer import wait_until_ready  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python reads its schemas by a function that Python 3.11 calls deprecated.
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(FOLDER):
            item.add_marker(pytest.mark.clients)


@pytest.fixture(scope="session")
def node_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs in JavaScript, with what they use; Node.js is no promised tool."""
    try:
        return install_node_programs(tmp_path_factory.mktemp("node"))
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def is_kafka() -> bool:
    return os.environ.get("FAIRLEAD_CLIENTS_AGAINST") == "kafka"


@pytest.fixture(scope="session")
def peer(
    is_kafka: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FairleadPeer | KafkaPeer]:
    data = tmp_path_factory.mktemp("cluster")
    started = (
        KafkaPeer(ensure_kafka(), data, GROUP_SETTINGS)
        if is_kafka
        else FairleadPeer(data, GROUP_SETTINGS)
    )
    with started:
        started.start()
        wait_until_ready(started)
        yield started


@pytest.fixture(scope="session")
def bootstrap(peer: FairleadPeer | KafkaPeer) -> str:
    return peer.bootstrap


@pytest.fixture(scope="session")
def log_directory(peer: FairleadPeer | KafkaPeer) -> Path:
    return peer.log_directory


@pytest.fixture(scope="session")
def tools(bootstrap: str) -> JavaTools:
    try:
        return JavaTools(ensure_kafka(), bootstrap)
    except KafkaUnavailableError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def kcat(bootstrap: str) -> Kcat:
    need("kcat")
    return Kcat(bootstrap)


@pytest.fixture(scope="session")
def get_client(bootstrap: str, request: pytest.FixtureRequest) -> Callable[[str], Client]:
    """Clients by name; one that this machine lacks skips the test that asks for it."""

    def get(name: str) -> Client:
        if name == "kcat":
            client: Client = request.getfixturevalue("kcat")
            return client
        if name == "Java console":
            return JavaConsole(request.getfixturevalue("tools"))
        makers = {each.name: each for each in (Confluent, KafkaPython, AioKafka)}
        return makers[name](bootstrap)

    return get


@pytest.fixture(params=CLIENT_NAMES)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    return get_client(request.param)


@pytest.fixture(scope="session")
def make_topic(peer: FairleadPeer | KafkaPeer, bootstrap: str) -> Callable[..., str]:
    """Creates a topic of one partition and returns its name once every partition takes writes."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def make(purpose: str, *, partitions: int = 1, **config: str) -> str:
        name = f"{purpose.replace(' ', '-').lower()}-{time.monotonic_ns()}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)
        wait_until_ready(peer)
        return name

    return make


@pytest.fixture(scope="session")
def records() -> tuple[Rec, ...]:
    """Every shape of record that a text client can say."""
    return (
        Rec(b"plain"),
        Rec(b"with a key", b"key"),
        Rec(b"", b"empty value"),
        Rec(b"empty key", b""),
        Rec(None, b"tombstone"),
        Rec("größer als zwei ✓".encode(), "schlüssel".encode()),
        Rec(b"headers", b"key", (("first", b"1"), ("second", b"two"), ("first", b"again"))),
        Rec(b"long " * 2000, b"long"),
    )


@pytest.fixture(scope="session")
def binary_records() -> tuple[Rec, ...]:
    """What only clients with a byte interface can say."""
    return (
        Rec(bytes(range(256)), bytes([0, 255, 10, 13])),
        Rec(b"null header", None, (("none", None), ("empty", b""))),
    )


@pytest.fixture
def members(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Members]:
    started = Members(bootstrap, request)
    yield started
    started.close()


@pytest.fixture
def group() -> str:
    return f"group-{time.monotonic_ns()}"


@pytest.fixture(scope="session")
def write(bootstrap: str) -> Callable[..., list[bytes]]:
    """Writes this many new values, spread evenly over the partitions of a topic."""
    from confluent_kafka import Producer

    numbers = itertools.count()

    def produce(topic: str, count: int, partitions: int = 1, *, timestamp: int = 0) -> list[bytes]:
        values = [b"value-%d" % next(numbers) for _ in range(count)]
        errors: list[Any] = []
        # A new one knows the partitions that there are now.
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
        for index, value in enumerate(values):
            producer.produce(
                topic,
                value,
                partition=index % partitions,
                timestamp=timestamp and timestamp + index,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0, "not acknowledged in time"
        assert not errors
        return values

    return produce


@pytest.fixture(scope="session")
def member_count(bootstrap: str) -> Callable[[str], int]:
    """Members of a stable group, as an administrator is told; -1 while it is not stable."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def count(group: str) -> int:
        future = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S)[group]
        description = future.result(DEADLINE_S)
        return len(description.members) if description.state.name == "STABLE" else -1

    return count
