"""A broker that was killed: what it says while it recovers, and what a stop signal does then."""

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 60.0
RECORD_BYTES = 500_000
RECORDS = 1_000


def killed_at_full_load(make_cluster: Callable[..., Any]) -> tuple[Any, Any]:
    """A broker killed with half a gigabyte that no flush has covered."""
    cluster = make_cluster()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("t", b"x" * RECORD_BYTES, partition=number % 2)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    broker = cluster.brokers[0]
    broker.kill()
    return cluster, broker


def see_recovery(broker: Any) -> dict[str, Any]:
    """What /readyz says while logs are scanned."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            status, body = broker.get("/readyz")
        except OSError:
            continue
        described: dict[str, Any] = json.loads(body)
        if "bytes" in described or described["state"] != "loading":
            return {"status": status, **described}
    raise AssertionError("no answer in time")


def test_recovery_shows_progress_and_heeds_a_stop_signal(make_cluster: Callable[..., Any]) -> None:
    _, broker = killed_at_full_load(make_cluster)
    broker.begin()
    seen = see_recovery(broker)
    assert (seen["status"], seen["state"], seen["logs"]) == (503, "loading", 2)
    assert 0 <= seen["bytes_done"] <= seen["bytes"]
    assert seen["bytes"] > RECORDS * RECORD_BYTES * 0.9
    assert broker.stop() == 0
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    broker.start()
    assert broker.get("/readyz")[0] == 200
