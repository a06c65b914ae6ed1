"""The time until a broker serves: a new one, and one with a thousand clean partitions."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.peers.peer import Peer, wait_until_ready
from fairlead_bench.scenarios.single_broker import ADMIN_TIMEOUT_S

TOPICS: Final = 10
PARTITIONS_A_TOPIC: Final = 100


def time_start(peer: Peer, *, partitions: int = 0, probe_topic: str | None = None) -> float:
    started_s = time.monotonic()
    peer.start()
    wait_until_ready(peer, partitions=partitions, probe_topic=probe_topic)
    return time.monotonic() - started_s


def measure_starts(
    make_peer: Callable[[Path], Peer], folder: Path, repetitions: int
) -> tuple[list[float], list[float]]:
    """Return seconds to readiness of first starts, and of restarts with 1,000 partitions.

    A first start begins with an empty folder. Kafka's folder is formatted, which is a command of
    its own for a user, before the time is measured.
    """
    fresh, loaded = [], []
    for index in range(repetitions):
        data = folder / f"fresh-{index}"
        data.mkdir(parents=True)
        peer = make_peer(data)
        try:
            peer.prepare()
            fresh.append(time_start(peer))
        finally:
            peer.stop()
        shutil.rmtree(data, ignore_errors=True)
    data = folder / "partitions"
    data.mkdir(parents=True)
    peer = make_peer(data)
    try:
        peer.start()
        wait_until_ready(peer)
        fill_partitions(peer.bootstrap)
        for _ in range(repetitions):
            peer.stop()
            loaded.append(
                time_start(peer, partitions=TOPICS * PARTITIONS_A_TOPIC, probe_topic="start-0")
            )
    finally:
        peer.stop()
    shutil.rmtree(data, ignore_errors=True)
    return fresh, loaded


def fill_partitions(bootstrap: str, replicas: int = 1) -> None:
    """Write a few records to each of a thousand partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    names = [f"start-{index}" for index in range(TOPICS)]
    topics = [NewTopic(name, PARTITIONS_A_TOPIC, replicas) for name in names]
    for future in admin.create_topics(topics).values():
        future.result(ADMIN_TIMEOUT_S)
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for name in names:
        for partition in range(PARTITIONS_A_TOPIC):
            for _ in range(3):
                producer.produce(name, b"x" * 100, partition=partition, on_delivery=delivered)
    if producer.flush(60) or failures:
        raise RuntimeError(f"could not fill the partitions: {failures[:3]}")
