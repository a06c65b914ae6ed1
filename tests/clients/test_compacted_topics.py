"""Compacted topics, as each client reads them from the beginning and as Kafka's dump tool does.

Once more with transactions, of which the markers go when their records are gone.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from client_adapters import CODECS, Client, Confluent, Rec, without_time
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools
from fairlead_wire.records import iter_batches

DEADLINE_S = 60.0
KEYS = 12
ROUNDS = 40
TRANSACTIONS = 300


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


def dumped(tools: JavaTools, folder: Path) -> str:
    """What Kafka's tool says of all files of a log, with the complaints that it may have."""
    output = ""
    for segment in sorted(folder.glob("*.log")):
        suffixes = (".log", ".index", ".timeindex", ".txnindex")
        files = [segment.with_suffix(each) for each in suffixes]
        names = ",".join(str(each) for each in files if each.exists())
        output += tools.run("kafka-dump-log", "--files", names, "--print-data-log")
    for complaint in ("isvalid: false", "Mismatches in", "timestamp mismatch", "out of order"):
        assert complaint not in output
    return output


def markers_left(folder: Path) -> int:
    """How many control batches a log has; more than any while a cleaning replaces what is read."""
    try:
        contents = [segment.read_bytes() for segment in folder.glob("*.log")]
    except FileNotFoundError:
        return 2 * TRANSACTIONS
    return sum(header.is_control for each in contents for _, header in iter_batches(each))


@pytest.mark.java
def test_markers_go_with_their_records(
    tools: JavaTools, bootstrap: str, log_directory: Path, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(
        "compacted transactions",
        cleanup_policy="compact",
        segment_bytes="16384",
        index_interval_bytes="512",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="300",
        file_delete_delay_ms="0",
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(DEADLINE_S)
    expected: dict[bytes | None, bytes | None] = {}
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for key in {b"key %d" % (number % KEYS), b"key 0"}:
            producer.produce(topic, b"%d " % number * 40, key)
            if number % 3:
                expected[key] = b"%d " % number * 40
        if number % 3:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)
    folder = log_directory / f"{topic}-0"

    def is_replacing() -> bool:
        return any(list(folder.glob(pattern)) for pattern in ("*.cleaned", "*.swap"))

    def are_few_left() -> bool:
        """A segment that is being replaced is not counted: neither it nor the new one is there."""
        return (
            not is_replacing() and markers_left(folder) < TRANSACTIONS // 3 and not is_replacing()
        )

    # Those of the active segment stay, and of what is not superseded yet.
    wait_until(are_few_left, deadline_s=DEADLINE_S)
    # No more of it, for the tool does not like files that go while it reads them.
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    wait_until(lambda: not is_replacing())
    assert dumped(tools, folder).count("endTxnMarker") == markers_left(folder) < TRANSACTIONS // 3
    left = read_to_the_end(bootstrap, topic)
    assert {record.key: record.value for record in left} == expected
