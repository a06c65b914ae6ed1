"""A partition without a leader: where producers send meanwhile, and what becomes of its records.

The topic has one replica of each of its partitions, one on each broker; one broker is killed.
Records without a key go to the other partitions, as far as the client sees to it. A key belongs
to its partition whatever happens: its records wait for the leader, or fail in the end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

from fairlead_wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# kafka-python leaves sockets behind that a dead broker has refused.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

TOPIC = "t"
PARTITIONS = 3
KEYS = [b"key-%d" % number for number in range(30)]
NO_KEYS: list[bytes | None] = [None] * 60
LONG_S = 60.0
SHORT_S = 15.0
# A client that has not heard of the death yet would still send there.
METADATA_MAX_AGE_MS = 200


class Cluster:
    """Three brokers, and the topic; `dead` leads the partition `leaderless`."""

    def __init__(self, live: Any) -> None:
        self.live = live
        self.started: list[subprocess.Popen[bytes]] = []
        """Commands that end with the test."""
        self.admin = AdminClient({"bootstrap.servers": live.bootstrap, "log_level": 0})
        created = self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        created[TOPIC].result(30)
        wait_until(lambda: self.leaders() >= {0, 1, 2})
        self.leaderless = 1
        self.dead = live.brokers[self.partitions()[self.leaderless].leader]

    def partitions(self) -> Any:
        try:
            return self.admin.list_topics(TOPIC, timeout=1).topics[TOPIC].partitions
        except KafkaException:
            return {}

    def leaders(self) -> set[int]:
        return {partition.leader for partition in self.partitions().values()}

    def stop_leader(self) -> None:
        """Kill it; return when each of the others tells clients that a partition has no leader."""
        self.dead.kill()
        for broker in self.live.brokers:
            if broker is not self.dead:
                wait_until(partial(tells_of_no_leader, broker.address))

    def start_leader(self) -> None:
        self.dead.start()
        wait_until(lambda: self.leaders() >= {0, 1, 2})

    @property
    def bootstrap(self) -> str:
        """Addresses of the brokers that stay."""
        return ",".join(each.address for each in self.live.brokers if each is not self.dead)


@pytest.fixture
def cluster(make_cluster: Callable[..., Any]) -> Iterator[Cluster]:
    made = Cluster(make_cluster(brokers=3, is_patient=True))
    yield made
    for process in made.started:
        process.kill()
        process.communicate()
    gc.collect()  # while that warning is ignored


def tells_of_no_leader(address: str) -> bool:
    """Ask this broker: the first question of a client goes to the only one that it knows."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        told = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    except KafkaException:
        return False
    return any(partition.leader == -1 for partition in told.values())


class Outcomes:
    """What became of records: the partition of each that was acknowledged, by its place."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, int] = {}
        self.failed: dict[int, str] = {}

    @property
    def settled(self) -> int:
        return len(self.acknowledged) + len(self.failed)


class Sender(Protocol):
    """Sends records with a client, in a thread of its own where the client needs one."""

    def __call__(
        self, bootstrap: str, keys: Sequence[bytes | None], timeout_s: float, outcomes: Outcomes
    ) -> None: ...


def send_by_librdkafka(
    bootstrap: str, keys: Sequence[bytes | None], timeout_s: float, outcomes: Outcomes
) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "message.timeout.ms": int(timeout_s * 1000),
            "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
            "log_level": 0,
        }
    )

    def note(place: int) -> Callable[[Any, Any], None]:
        def told(error: Any, message: Any) -> None:
            if error is None:
                outcomes.acknowledged[place] = message.partition()
            else:
                outcomes.failed[place] = error.name()

        return told

    for place, key in enumerate(keys):
        producer.produce(TOPIC, b"value", key, on_delivery=note(place))
    while outcomes.settled < len(keys):
        producer.poll(0.05)


def send_by_kafka_python(
    bootstrap: str, keys: Sequence[bytes | None], timeout_s: float, outcomes: Outcomes
) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        delivery_timeout_ms=int(timeout_s * 1000),
        request_timeout_ms=min(int(timeout_s * 1000), 10_000) - 100,
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
    )
    for place, key in enumerate(keys):
        sent = producer.send(TOPIC, b"value", key)
        sent.add_callback(
            lambda found, place=place: outcomes.acknowledged.update({place: found.partition})
        )
        sent.add_errback(
            lambda error, place=place: outcomes.failed.update({place: type(error).__name__})
        )
    wait_until(lambda: outcomes.settled == len(keys))
    producer.close(timeout=5)


def send_by_aiokafka(
    bootstrap: str, keys: Sequence[bytes | None], timeout_s: float, outcomes: Outcomes
) -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            request_timeout_ms=int(timeout_s * 1000),
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
        )
        await producer.start()

        async def note(place: int, sent: Any) -> None:
            try:
                outcomes.acknowledged[place] = (await sent).partition
            except Exception as error:
                outcomes.failed[place] = type(error).__name__

        try:
            sent = [await producer.send(TOPIC, b"value", key) for key in keys]
            await asyncio.gather(*(note(place, each) for place, each in enumerate(sent)))
        finally:
            await producer.stop()

    asyncio.run(send())


@pytest.mark.parametrize(
    ("send", "always_avoids", "error"),
    [
        # Of two partitions drawn at random it takes the second as it comes.
        pytest.param(send_by_librdkafka, False, "_MSG_TIMED_OUT", id="librdkafka"),
        pytest.param(send_by_kafka_python, True, "KafkaTimeoutError", id="kafka-python"),
        pytest.param(send_by_aiokafka, True, "LeaderNotAvailableError", id="aiokafka"),
    ],
)
def test_only_records_of_the_leaderless_partition_wait(
    cluster: Cluster, send: Sender, always_avoids: bool, error: str
) -> None:
    leaderless = cluster.leaderless
    of_leaderless = {
        place for place, key in enumerate(KEYS) if partition_for_key(key, PARTITIONS) == leaderless
    }
    others = set(range(len(KEYS))) - of_leaderless
    cluster.stop_leader()

    without_key = Outcomes()
    send(cluster.bootstrap, NO_KEYS, LONG_S if always_avoids else SHORT_S, without_key)
    assert set(without_key.acknowledged.values()) <= {0, 1, 2} - {leaderless}
    assert set(without_key.failed.values()) <= (set() if always_avoids else {error})

    given_up = Outcomes()
    send(cluster.bootstrap, KEYS, SHORT_S, given_up)
    assert set(given_up.acknowledged) == others
    assert given_up.failed == dict.fromkeys(of_leaderless, error)

    waiting = Outcomes()
    thread = threading.Thread(target=send, args=(cluster.bootstrap, KEYS, LONG_S, waiting))
    thread.start()
    try:
        wait_until(lambda: set(waiting.acknowledged) == others, lambda: repr(vars(waiting)))
        assert waiting.failed == {}
        cluster.start_leader()
    finally:
        thread.join()
    assert waiting.failed == {}
    assert {place for place, at in waiting.acknowledged.items() if at == 1} == of_leaderless


def test_fairlead_produce_goes_on_or_waits_and_says_so(cluster: Cluster) -> None:
    cluster.stop_leader()
    for partitioner in ("sticky", "round-robin"):
        options = ("--partitioner", partitioner, "--batch-size", "50")
        done = produce(cluster, b"value\n" * 300, *options)
        out, error = done.communicate(timeout=60)
        assert done.returncode == 0, error
        assert json.loads(out)["records"] == 300
        assert b"waiting" not in error

    lines = b"".join(key + b":value\n" for key in KEYS)
    started = produce(cluster, lines, "--key-separator", ":")
    assert started.stderr is not None
    assert b"waiting for a leader that takes them" in started.stderr.readline()
    cluster.start_leader()
    out, error = started.communicate(timeout=60)
    assert started.returncode == 0, error
    summary = json.loads(out)
    assert (summary["records"], summary["failed"]) == (len(KEYS), 0)


def produce(cluster: Cluster, lines: bytes, *options: str) -> subprocess.Popen[bytes]:
    """`fairlead produce`, with its input handed over."""
    command = [sys.executable, "-m", "fairlead_cli.main", "produce", TOPIC]
    started = subprocess.Popen(
        [*command, "--bootstrap", cluster.bootstrap, "-o", "json", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    cluster.started.append(started)
    assert started.stdin is not None
    started.stdin.write(lines)
    started.stdin.close()
    started.stdin = None
    return started
