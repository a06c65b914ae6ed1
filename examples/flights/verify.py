"""Read the flights back with three Kafka clients and compare them with the files.

    python examples/flights/verify.py --bootstrap localhost:9092

For each client and topic: the number of records, the order within each key, and a checksum over
everything. Needs kafka-python and aiokafka beside confluent-kafka; any of them may be left out
with --clients.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

# Needed if Python leaves a script's folder out of the path (PYTHONSAFEPATH=1).
sys.path.insert(0, str(Path(__file__).resolve().parent))

from typing import TYPE_CHECKING

from dataset import TABLES, Fingerprint, Table, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

# How long a client may go without a record before the check fails.
SILENCE_S = 20.0


def read_with_confluent_kafka(bootstrap: str, table: Table) -> Fingerprint:
    """Read with librdkafka, from assigned partitions."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    taken = Fingerprint()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "flights-verify",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
    }
    consumer = Consumer(settings)
    try:
        partitions = consumer.list_topics(table.name, timeout=SILENCE_S).topics[table.name]
        consumer.assign(
            [
                TopicPartition(table.name, number, OFFSET_BEGINNING)
                for number in partitions.partitions
            ]
        )
        last = time.monotonic()
        while taken.records < table.rows and time.monotonic() - last < SILENCE_S:
            for message in consumer.consume(5000, 0.2):
                if message.error() is not None:
                    raise KafkaException(message.error())
                taken.add(message.key(), message.value())
                last = time.monotonic()
    finally:
        consumer.close()
    return taken


def read_with_kafka_python(bootstrap: str, table: Table) -> Fingerprint:
    """Read with pure Python; without a group it reads every partition."""
    from kafka import KafkaConsumer

    taken = Fingerprint()
    consumer = KafkaConsumer(
        table.name,
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=5000,
        fetch_max_wait_ms=50,
    )
    try:
        last = time.monotonic()
        while taken.records < table.rows and time.monotonic() - last < SILENCE_S:
            for records in consumer.poll(timeout_ms=200).values():
                for record in records:
                    taken.add(record.key, record.value)
                last = time.monotonic()
    finally:
        consumer.close()
    return taken


def read_with_aiokafka(bootstrap: str, table: Table) -> Fingerprint:
    """Read with asyncio; without a group it reads every partition."""
    from aiokafka import AIOKafkaConsumer

    taken = Fingerprint()

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            table.name,
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        await consumer.start()
        try:
            last = time.monotonic()
            while taken.records < table.rows and time.monotonic() - last < SILENCE_S:
                batches = await consumer.getmany(timeout_ms=200, max_records=5000)
                for records in batches.values():
                    for record in records:
                        taken.add(record.key, record.value)
                    last = time.monotonic()
        finally:
            await consumer.stop()

    asyncio.run(read())
    return taken


CLIENTS: dict[str, Callable[[str, Table], Fingerprint]] = {
    "confluent-kafka": read_with_confluent_kafka,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
}


def main() -> None:
    """Compare every table with what every client reads; exit 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    arguments = parser.parse_args()
    is_right = True
    for name in arguments.tables:
        expected = fingerprint(TABLES[name])
        for client in arguments.clients:
            started = time.monotonic()
            taken = CLIENTS[client](arguments.bootstrap, TABLES[name])
            seconds = time.monotonic() - started
            differences = expected.differences(taken)
            verdict = "ok" if not differences else "DIFFERENT"
            print(
                f"{name:<9} {client:<16} {taken.records:>8,} records  "
                f"checksum {taken.checksum()}  {seconds:5.1f} s  {verdict}",
                flush=True,
            )
            for line in differences[:10]:
                print(f"          {line}")
            is_right = is_right and not differences
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
