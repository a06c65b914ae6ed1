"""Timestamps as clients set them, as brokers set them, and offsets found by them."""

import asyncio
import time
from collections.abc import Callable

import pytest
from client_adapters import AioKafka, Client, Confluent, KafkaPython, Kcat, Rec

from fairlead_bench.peers.java_tools import JavaTools

START_MS = 1_700_000_000_000
STEP_MS = 60_000
COUNT = 50


@pytest.fixture(scope="session")
def timed_topic(bootstrap: str, make_topic: Callable[..., str]) -> str:
    """Fifty records, a minute apart, in two batches with different codecs."""
    topic = make_topic("timed", retention_ms="-1", message_timestamp_before_max_ms=str(2**63 - 1))
    records = [Rec(b"%d" % i, timestamp_ms=START_MS + i * STEP_MS) for i in range(COUNT)]
    Confluent(bootstrap).produce(topic, records[: COUNT // 2])
    Confluent(bootstrap).produce(topic, records[COUNT // 2 :], codec="lz4")
    return topic


def offset_by_confluent(bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 2})
    found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=60)[0]
    consumer.close()
    return None if found.offset < 0 else int(found.offset)


def offset_by_kafka_python(bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        partition = TopicPartition(topic, 0)
        found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
    finally:
        consumer.close()
    return None if found is None else int(found.offset)


def offset_by_aiokafka(bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def ask() -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        await consumer.start()
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
        finally:
            await consumer.stop()
        return None if found is None else int(found.offset)

    return asyncio.run(asyncio.wait_for(ask(), 60))


LOOKUPS = {
    "confluent-kafka": offset_by_confluent,
    "kafka-python": offset_by_kafka_python,
    "aiokafka": offset_by_aiokafka,
}


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        pytest.param(0, 0, id="before all"),
        pytest.param(START_MS + 10 * STEP_MS, 10, id="exactly one record"),
        pytest.param(START_MS + 10 * STEP_MS + 1, 11, id="between two records"),
        pytest.param(START_MS + 40 * STEP_MS, 40, id="inside a compressed batch"),
        pytest.param(START_MS + COUNT * STEP_MS, None, id="after all"),
    ],
)
def test_offsets_are_found_by_time(
    name: str, timestamp_ms: int, expected: int | None, bootstrap: str, timed_topic: str
) -> None:
    assert LOOKUPS[name](bootstrap, timed_topic, timestamp_ms) == expected


def test_kcat_finds_offsets_by_time(kcat: Kcat, timed_topic: str) -> None:
    assert kcat.query_offset(timed_topic, START_MS + 10 * STEP_MS + 1) == 11


@pytest.mark.java
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("earliest", 0),
        ("latest", COUNT),
        ("max-timestamp", COUNT - 1),
        ("earliest-local", 0),
        (str(START_MS + 10 * STEP_MS), 10),
    ],
)
def test_kafka_get_offsets_answers(
    asked: str, expected: int, tools: JavaTools, timed_topic: str
) -> None:
    output = tools.run("kafka-get-offsets", "--topic", timed_topic, "--time", asked)
    assert output.strip() == f"{timed_topic}:0:{expected}"


@pytest.mark.parametrize("maker", [Confluent, KafkaPython, AioKafka], ids=lambda each: each.name)
def test_create_time_is_what_the_producer_said(
    maker: Callable[[str], Client], bootstrap: str, make_topic: Callable[..., str]
) -> None:
    client = maker(bootstrap)
    topic = make_topic("create-time", retention_ms="-1")
    records = [Rec(b"a", timestamp_ms=START_MS), Rec(b"b", timestamp_ms=START_MS - 5)]
    client.produce(topic, records, codec="gzip")
    assert client.consume(topic, 2) == records


def test_log_append_time_is_the_brokers_clock(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("append-time", message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    given_ms = START_MS if client.sets_timestamps else None
    client.produce(topic, [Rec(b"a", timestamp_ms=given_ms), Rec(b"b", timestamp_ms=given_ms)])
    after_ms = time.time_ns() // 1_000_000
    stamps = [record.timestamp_ms or 0 for record in client.consume(topic, 2)]
    assert all(before_ms <= stamp <= after_ms for stamp in stamps)
