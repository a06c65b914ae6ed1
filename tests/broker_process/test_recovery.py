"""A broker that was killed: what it says while it recovers, and what a stop signal does then."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from held_recovery import HeldRecovery
from waiting import wait_until

DEADLINE_S = 60.0
RECORD_BYTES = 500_000
RECORDS = 100


def killed_at_full_load(make_cluster: Callable[..., Any]) -> tuple[Any, Any]:
    """A broker killed with fifty megabytes that no flush has covered."""
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

    def described() -> dict[str, Any]:
        try:
            status, body = broker.get("/readyz")
        except OSError:  # not listening yet
            return {}
        answer: dict[str, Any] = json.loads(body)
        return {"status": status, **answer} if "bytes" in answer else {}

    return wait_until(described)


def test_recovery_shows_progress_and_heeds_a_stop_signal(
    make_cluster: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, broker = killed_at_full_load(make_cluster)
    recovery = HeldRecovery(tmp_path / "held", monkeypatch)
    broker.begin()
    seen = see_recovery(broker)
    assert (seen["status"], seen["state"], seen["logs"]) == (503, "loading", 2)
    assert 0 <= seen["bytes_done"] <= seen["bytes"]
    assert seen["bytes"] > RECORDS * RECORD_BYTES * 0.9
    # Also while its processes say nothing, as when a disk hangs.
    assert broker.stop() == 0
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    recovery.let_go()
    broker.start()
    assert broker.get("/readyz")[0] == 200
