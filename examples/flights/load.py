"""Load all flights out of New York in 2013, with weather, planes and airports, into topics.

    python examples/flights/load.py --bootstrap localhost:9092

Flights are keyed by carrier, so the flights of one carrier keep their order. `verify.py` reads
everything back with three clients.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# Needed if Python leaves a script's folder out of the path (PYTHONSAFEPATH=1).
sys.path.insert(0, str(Path(__file__).resolve().parent))

from dataset import TABLES, Fingerprint, Table, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

CONNECT_TIMEOUT_S = 5.0
TIMEOUT_S = 30.0
# The records are from 2013: with any other retention the next check would delete them.
KEEP_FOREVER = {"retention.ms": "-1"}


def ensure_empty_topic(admin: AdminClient, table: Table, *, replace: bool) -> None:
    """Create the topic or empty it; a topic with records is emptied only with `replace`."""
    existing = admin.list_topics(timeout=TIMEOUT_S).topics
    if table.name in existing:
        ends = list_offsets(admin, table.name, existing[table.name].partitions, OffsetSpec.latest())
        starts = list_offsets(admin, table.name, ends, OffsetSpec.earliest())
        if starts == ends:
            return
        if not replace:
            sys.exit(f"Topic {table.name} already holds records. Start over with --replace.")
        # Delete its records, not the topic: a topic from a manifest cannot be deleted here.
        points = [TopicPartition(table.name, number, end) for number, end in ends.items()]
        for future in admin.delete_records(points).values():
            future.result()
        return
    new = NewTopic(table.name, num_partitions=table.partitions, config=KEEP_FOREVER)
    admin.create_topics([new])[table.name].result()
    wait_for_topic(admin, table.name)


def list_offsets(
    admin: AdminClient, topic: str, partitions: Iterable[int], spec: OffsetSpec
) -> dict[int, int]:
    """Return an offset for each partition."""
    request = {TopicPartition(topic, number): spec for number in partitions}
    futures = admin.list_offsets(request, request_timeout=TIMEOUT_S)
    return {at.partition: future.result().offset for at, future in futures.items()}


def wait_for_topic(admin: AdminClient, topic: str) -> None:
    """Wait until every partition has a leader."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        leaders = [] if found is None else [p.leader for p in found.partitions.values()]
        if leaders and min(leaders) >= 0:
            return
        time.sleep(0.02)
    sys.exit(f"Topic {topic} has no leader after {TIMEOUT_S:.0f} s.")


class Loader:
    """Sends one table after another; a record that a broker refuses ends the load."""

    def __init__(self, bootstrap: str, compression: str) -> None:
        self.failure: object = None
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "flights-loader",
                "log_level": 0,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "compression.type": compression,
                "linger.ms": 20,
                "delivery.report.only.error": True,
            }
        )

    def on_delivery(self, error: object, _message: object) -> None:
        """Note an error; called for failures only."""
        self.failure = self.failure or error

    def load(self, table: Table, progress: Progress) -> Fingerprint:
        """Send all rows in order, and return the fingerprint of what was sent."""
        task = progress.add_task(table.name, total=table.rows)
        sent = Fingerprint()
        for count, row in enumerate(read_rows(table), start=1):
            self.send(table.name, row.key, row.value, row.timestamp_ms)
            sent.add(row.key, row.value)
            if count % 2000 == 0:
                progress.update(task, completed=count)
        if self.producer.flush(TIMEOUT_S) or self.failure:
            sys.exit(f"Loading {table.name} failed: {self.failure or 'no answer from the broker'}")
        progress.update(task, completed=sent.records)
        return sent

    def send(self, topic: str, key: bytes, value: bytes, timestamp_ms: int | None) -> None:
        """Queue one record, waiting while the queue is full."""
        when = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        while True:
            try:
                self.producer.produce(topic, value, key, on_delivery=self.on_delivery, **when)
            except BufferError:
                self.producer.poll(0.1)
            else:
                self.producer.poll(0)
                return


def main() -> None:
    """Create the topics, load the tables, print what was sent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--replace", action="store_true", help="delete what the topics hold first")
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none"
    )
    arguments = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": arguments.bootstrap, "log_level": 0})
    try:
        admin.list_topics(timeout=CONNECT_TIMEOUT_S)
    except KafkaException:
        sys.exit(f"No cluster answers at {arguments.bootstrap}. Start one:  fairlead up --detach")
    loader = Loader(arguments.bootstrap, arguments.compression)
    started = time.monotonic()
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn())
    sent = {}
    try:
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
            for name in arguments.tables:
                ensure_empty_topic(admin, TABLES[name], replace=arguments.replace)
                sent[name] = loader.load(TABLES[name], progress)
    except KafkaException as error:
        sys.exit(f"The cluster refused: {error.args[0].str()}")
    except KeyboardInterrupt:
        sys.exit(130)
    for name, taken in sent.items():
        print(
            f"{name:<9} {taken.records:>8,} records  {len(taken.counts):>5,} keys  "
            f"checksum {taken.checksum()}"
        )
    total = sum(taken.records for taken in sent.values())
    print(f"{total:,} records in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
