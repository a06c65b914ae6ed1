"""`kill -9` of a broker while it compacts: the last acknowledged value of every key is there.

Small segments and no pause between cleanings, so that a random moment falls into a cleaning, a
replacement of segments, or a recovery from one. Half of the records are in transactions, of which
some are aborted, so that markers and what knows of them come and go too. A quarter of the rounds of
other kills.
"""

import os
import random
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from marked_transactions import wait_until_marked
from proofs import KILLS

from fairlead_broker.tools.verify import verify_partition

PROJECT = Path(__file__).resolve().parents[2]
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.peers.fairlead_peer import FairleadPeer  # noqa: E402
from fairlead_bench.peers.peer import wait_until_ready  # noqa: E402

pytestmark = [pytest.mark.crash, pytest.mark.proof, pytest.mark.slow]

ROUNDS = max(KILLS.chosen() // 4, 1)
SEED = int(os.environ.get("FAIRLEAD_SEED", "9"))
TOPIC = "prices"
KEYS = 500
DEADLINE_S = 60.0
RECORDS_PER_TRANSACTION = 40
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 << 10),
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
    "file.delete.delay.ms": "100",
    "compression.type": "producer",
}


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[FairleadPeer]:
    settings = {
        "log.cleaner.backoff.ms": "20",
        # Slow enough that a cleaning lasts.
        "log.cleaner.io.max.bytes.per.second": str(8 << 20),
    }
    with FairleadPeer(tmp_path, settings) as started:
        started.start()
        wait_until_ready(started)
        admin = AdminClient({"bootstrap.servers": started.bootstrap, "log_level": 2})
        topic = NewTopic(TOPIC, 1, 1, config=TOPIC_SETTINGS)
        admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        yield started


def metric(peer: FairleadPeer, name: str) -> float:
    url = f"http://127.0.0.1:{peer.http_port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def write_values(
    peer: FairleadPeer, chance: random.Random, last: dict[bytes, bytes | None]
) -> None:
    """Overwrites random keys until enough was written; `last` gets what was acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": peer.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "log_level": 2,
            "batch.size": 8_000,
            "compression.type": chance.choice(("none", "lz4", "zstd", "gzip", "snappy")),
        }
    )
    refused = []
    for number in range(6_000):
        key = b"key-%d" % chance.randrange(KEYS)
        value = None if chance.random() < 0.1 else b"%d-" % number + b"x" * chance.randrange(200)
        last[key] = value
        producer.produce(
            TOPIC, value, key, on_delivery=lambda error, _: refused.append(error) if error else 0
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert not refused


def write_transactions(
    peer: FairleadPeer, chance: random.Random, last: dict[bytes, bytes | None]
) -> None:
    """Overwrites random keys in transactions; `last` gets what was committed."""
    producer = Producer(
        {
            "bootstrap.servers": peer.bootstrap,
            "transactional.id": "prices",
            "linger.ms": 2,
            "log_level": 2,
        }
    )
    producer.init_transactions(DEADLINE_S)
    for number in range(6_000 // RECORDS_PER_TRANSACTION):
        written: dict[bytes, bytes | None] = {}
        producer.begin_transaction()
        for _ in range(RECORDS_PER_TRANSACTION):
            key = b"key-%d" % chance.randrange(KEYS)
            written[key] = b"transaction %d-" % number + b"x" * chance.randrange(200)
            producer.produce(TOPIC, written[key], key)
        if chance.random() < 0.3:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
            last |= written


def read_values(peer: FairleadPeer) -> tuple[dict[bytes, bytes | None], int]:
    """The last value of each key as a new consumer sees it, and how many records that took."""
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": "unused",
            "log_level": 2,
            "enable.partition.eof": True,
        }
    )
    last: dict[bytes, bytes | None] = {}
    count, previous = 0, -1
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                error = message.error()
                if error is not None and error.code() == -191:  # the end of the partition
                    return last, count
                if error is not None:
                    raise KafkaException(error)
                offset = message.offset() or 0
                assert offset > previous, "offsets do not rise"
                previous = offset
                key = message.key()
                if isinstance(key, bytes):
                    value = message.value()
                    last[key] = value if isinstance(value, bytes) else None
                    count += 1
    finally:
        consumer.close()
    raise AssertionError("the end was never reached")


def test_killed_while_compacting(peer: FairleadPeer) -> None:
    chance = random.Random(SEED)
    last: dict[bytes, bytes | None] = {}
    written = 0
    for _ in range(ROUNDS):
        write_values(peer, chance, last)
        written += 6_000
        deadline = time.monotonic() + DEADLINE_S
        while metric(peer, "fairlead_cleaner_read_bytes_total") == 0:
            assert time.monotonic() < deadline, "nothing is ever compacted"
            time.sleep(0.02)
        # Overwrite once more, so that a cleaning is under way at a random moment of it.
        write_transactions(peer, chance, last)
        written += 6_000
        time.sleep(chance.random() * 0.5)
        peer.kill_broker()
        peer.start_broker()
        wait_until_ready(peer, partitions=1)
        # A commit is answered before its markers are written; until then nobody reads behind it.
        wait_until_marked(peer.bootstrap)
        found, count = read_values(peer)
        values = {key: value for key, value in last.items() if value is not None}
        assert {key: value for key, value in found.items() if value is not None} == values
        assert count < written
        findings = list(verify_partition(peer.log_directory / f"{TOPIC}-0"))
        assert not findings, findings[:3]
    assert metric(peer, "kafka_log_logcleanermanager_uncleanable_partitions_count") == 0
    assert metric(peer, "fairlead_task_failures_total") == 0
