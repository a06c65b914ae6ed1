"""Compacted topics, as each client reads them from the beginning and as Kafka's dump tool does."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from client_adapters import CODECS, Client, Confluent, Rec, without_time
from confluent_kafka import Consumer, KafkaError, TopicPartition

from fairlead_bench.java_tools import JavaTools

DEADLINE_S = 60.0
KEYS = 12
ROUNDS = 40


@pytest.fixture(scope="module")
def compacted(
    bootstrap: str, log_directory: Path, make_topic: Callable[..., str]
) -> tuple[str, Path, list[Rec]]:
    """A topic with gaps and empty batches, its folder, and what is left in it."""
    name = make_topic(
        "compacted",
        cleanup_policy="compact",
        segment_bytes="16384",
        index_interval_bytes="512",
        min_cleanable_dirty_ratio="0.01",
        file_delete_delay_ms="0",
    )
    client = Confluent(bootstrap)
    for number in range(ROUNDS):
        codec = CODECS[number % len(CODECS)]
        records = [
            Rec(b"%d " % number * 80, b"key %d" % key, (("round", b"%d" % number),))
            for key in range(KEYS)
            if (number + key) % 3
        ]
        client.produce(name, records, codec=codec, is_idempotent=number % 2 == 0)
    client.produce(name, [Rec(None, b"key 0"), Rec(b"the last", b"last")])
    deadline = time.monotonic() + DEADLINE_S
    while True:
        left = read_to_the_end(bootstrap, name)
        # What is in the active segment stays.
        if len(left) < ROUNDS * KEYS // 4:
            break
        assert time.monotonic() < deadline, f"{len(left)} records are left"
        time.sleep(0.2)
    return name, log_directory / f"{name}-0", left


def read_to_the_end(bootstrap: str, topic: str) -> list[Rec]:
    """Everything in partition 0; a reader that a gap holds up never gets to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    found: list[Rec] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            key, value = message.key(), message.value()
            found.append(
                Rec(
                    value if isinstance(value, bytes) else None,
                    key if isinstance(key, bytes) else None,
                    tuple(message.headers() or ()),
                )
            )
    finally:
        consumer.close()
    raise AssertionError("the end was never reached")


def test_every_client_reads_a_compacted_topic_from_the_beginning(
    client: Client, compacted: tuple[str, Path, list[Rec]]
) -> None:
    name, _, left = compacted
    assert without_time(client.consume(name, len(left))) == left


def test_the_last_value_of_every_key_is_there(compacted: tuple[str, Path, list[Rec]]) -> None:
    _, _, left = compacted
    last = {record.key: record.value for record in left}
    expected: dict[bytes | None, bytes | None] = {b"last": b"the last", b"key 0": None}
    for key in range(1, KEYS):
        newest = max(number for number in range(ROUNDS) if (number + key) % 3)
        expected[b"key %d" % key] = b"%d " % newest * 80
    assert last == expected


@pytest.mark.java
def test_kafka_dump_log_reads_compacted_segments(
    tools: JavaTools, compacted: tuple[str, Path, list[Rec]]
) -> None:
    _, folder, left = compacted
    offsets: list[int] = []
    for segment in sorted(folder.glob("*.log")):
        files = ",".join(str(segment.with_suffix(s)) for s in (".log", ".index", ".timeindex"))
        output = tools.run("kafka-dump-log", "--files", files, "--print-data-log")
        offsets += [int(each) for each in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
        for complaint in ("isvalid: false", "Mismatches in", "timestamp mismatch", "out of order"):
            assert complaint not in output
    assert len(offsets) == len(left)
    assert offsets == sorted(set(offsets))
