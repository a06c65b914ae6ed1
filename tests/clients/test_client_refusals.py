"""What this release does not have is refused in words, at once, and breaks nothing else."""

from collections.abc import Callable

import pytest
from client_adapters import Confluent, Rec, without_time

from fairlead_bench.java_tools import JavaTools


@pytest.fixture(autouse=True)
def _only_here(is_kafka: bool) -> None:
    if is_kafka:
        pytest.skip("Apache Kafka has groups and transactions")


def test_librdkafka_is_told_that_there_are_no_groups(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    topic = make_topic("no-groups")
    settings = {"bootstrap.servers": bootstrap, "group.id": "wanted", "log_level": 2}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe([topic])
    message = consumer.poll(10)
    assert message is not None
    assert message.error().code() == KafkaError._UNSUPPORTED_FEATURE
    with pytest.raises(KafkaException) as refusal:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert refusal.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE
    consumer.close()


@pytest.mark.java
def test_the_java_consumer_is_told_that_there_are_no_groups(
    tools: JavaTools, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("no-java-groups")
    arguments = ("--topic", topic, "--from-beginning", "--timeout-ms", "10000")
    process = tools.run_unchecked("kafka-console-consumer", *arguments)
    assert b"does not support JOIN_GROUP" in process.stderr


def test_kafka_python_is_told_that_there_are_no_groups(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import IncompatibleBrokerVersion

    topic = make_topic("no-python-groups")
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id="wanted", enable_auto_commit=False
    )
    try:
        with pytest.raises(IncompatibleBrokerVersion, match="JoinGroup"):
            consumer.poll(timeout_ms=10_000)
    finally:
        consumer.close(autocommit=False)


def test_transactions_are_refused_with_the_reason_and_the_alternative(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    from confluent_kafka import KafkaException, Producer

    settings = {"bootstrap.servers": bootstrap, "transactional.id": "wanted", "log_level": 0}
    producer = Producer(settings)
    with pytest.raises(KafkaException, match="transactions are not available"):
        producer.init_transactions(10)
    topic = make_topic("instead")
    client = Confluent(bootstrap)
    client.produce(topic, [Rec(b"idempotent instead")], is_idempotent=True)
    assert without_time(client.consume(topic, 1)) == [Rec(b"idempotent instead")]


def test_old_record_formats_are_refused(bootstrap: str, make_topic: Callable[..., str]) -> None:
    import struct

    from fairlead_bench import wire_bytes
    from fairlead_bench.peer import exchange

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
        pytest.param(1, {"compression.type": "gzip"}, "INVALID_CONFIG", id="recompression"),
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
        future.result(20)
