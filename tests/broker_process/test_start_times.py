"""How long a broker takes until it is ready."""

from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 60.0


def test_a_broker_is_ready_within_a_second(make_cluster: Callable[..., Any]) -> None:
    """The best of three: its disk and its controller are used by others, too."""
    (broker,) = make_cluster().brokers
    took_ms = [broker.started_in_ms]
    while took_ms[-1] >= 1000 and len(took_ms) < 3:
        assert broker.stop() == 0
        broker.start()
        took_ms.append(broker.started_in_ms)
    assert took_ms[-1] < 1000, took_ms


def test_a_thousand_partitions_are_ready_within_a_second(
    make_cluster: Callable[..., Any],
) -> None:
    """The best of three: other processes may be using the machine."""
    cluster = make_cluster()
    broker = cluster.brokers[0]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("many", 1000, 1)])["many"].result(DEADLINE_S)
    took_ms = []
    for _ in range(3):
        assert broker.stop() == 0
        broker.start()
        assert broker.ready["partitions"] == "1000"
        took_ms.append(broker.started_in_ms)
    assert min(took_ms) <= 1000, took_ms
