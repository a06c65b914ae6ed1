"""What this release does not have is refused in words, at once, and breaks nothing else."""

from collections.abc import Callable

import pytest


@pytest.fixture(autouse=True)
def _only_here(is_kafka: bool) -> None:
    if is_kafka:
        pytest.skip("Apache Kafka takes more")


def test_old_record_formats_are_refused(bootstrap: str, make_topic: Callable[..., str]) -> None:
    import struct

    from fairlead_bench.loads import wire_bytes
    from fairlead_bench.peers.peer import exchange

    topic = make_topic("old-format")
    batch = bytearray(wire_bytes.record_batch([b"value"]))
    batch[16] = 1
    request = wire_bytes.produce_request(topic, 0, bytes(batch))
    reply = exchange(int(bootstrap.rpartition(":")[2]), request)
    position = wire_bytes.produce_error_position(topic) - 4
    assert struct.unpack_from(">h", reply, position)[0] in (43, 87)


@pytest.mark.parametrize(
    ("replicas", "config", "error"),
    [
        pytest.param(1, {"compression.type": "lzma"}, "INVALID_CONFIG", id="no such codec"),
        pytest.param(3, {}, "INVALID_REPLICATION_FACTOR", id="replication"),
    ],
)
def test_topics_that_cannot_be_served_are_not_created(
    replicas: int, config: dict[str, str], error: str, bootstrap: str
) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    future = admin.create_topics([NewTopic("refused", 1, replicas, config=config)])["refused"]
    with pytest.raises(KafkaException, match=error):
        future.result(60)
