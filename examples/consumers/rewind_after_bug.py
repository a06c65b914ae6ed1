"""Rewind after a bug: do again, with the repaired function, what was done since a point in time.

    python examples/consumers/rewind_after_bug.py run --code 1 --idle-s 5
    python examples/consumers/rewind_after_bug.py rewind --since 2013-10-01
    python examples/consumers/rewind_after_bug.py run --code 2 --idle-s 5

To do it again is harmless because the output's key is the record's position in the log: the second
result replaces the first.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sqlite3
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

log = logging.getLogger("rewind_after_bug")

SCHEMA = """CREATE TABLE IF NOT EXISTS delays (
    topic TEXT, partition INTEGER, record_offset INTEGER, carrier TEXT, minutes INTEGER,
    PRIMARY KEY (topic, partition, record_offset))"""
STORE = "INSERT OR REPLACE INTO delays VALUES (?, ?, ?, ?, ?)"


def delay_before(flight: dict[str, Any]) -> int | None:
    """The bug: a cancelled flight has no delay, but counts as one that left on time."""
    return flight["dep_delay"] or 0


def delay_repaired(flight: dict[str, Any]) -> int | None:
    """The repair: return None for a cancelled flight, so that averages leave it out."""
    return flight["dep_delay"]


CODE = {1: delay_before, 2: delay_repaired}


def connect(arguments: argparse.Namespace) -> Consumer:
    """Return a consumer that commits only on request."""
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return Consumer(settings, logger=log)


def rewind(arguments: argparse.Namespace) -> None:
    """Move the group's offsets back, while none of its members runs.

    `fairlead group reset` does the same from the command line.
    """
    consumer = connect(arguments)
    since_ms = int(arguments.since.timestamp() * 1000)
    try:
        partitions = consumer.list_topics(arguments.topic, timeout=10).topics[arguments.topic]
        asked = [TopicPartition(arguments.topic, each, since_ms) for each in partitions.partitions]
        # In each partition, the first record at or after this time. Older ones may follow, if
        # records were not written in the order of their times; they are done again as well.
        found = consumer.offsets_for_times(asked, timeout=10)
        for at in found:
            if at.offset < 0:  # nothing is as young: go on at the end
                at.offset = consumer.get_watermark_offsets(at, timeout=10)[1]
        consumer.commit(offsets=found, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
            sys.exit(f"Group {arguments.group} is at work. Stop its members first.")
        raise
    finally:
        consumer.close()
    for at in found:
        log.info("partition %d goes on at offset %d", at.partition, at.offset)


def run(arguments: argparse.Namespace) -> None:
    """Poll, store and commit until a signal."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    delay_of = CODE[arguments.code]
    db = sqlite3.connect(arguments.db, timeout=30)
    db.execute(SCHEMA)
    consumer = connect(arguments)
    consumer.subscribe([arguments.topic])
    done = 0
    last_record = time.monotonic()
    try:
        while not stopping.is_set():
            messages = consumer.consume(500, timeout=0.5)
            if messages or not consumer.assignment():
                last_record = time.monotonic()
            elif arguments.idle_s and time.monotonic() - last_record > arguments.idle_s:
                break
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            if not messages:
                continue
            with db:
                for m in messages:
                    flight = json.loads(m.value())
                    place = (m.topic(), m.partition(), m.offset())
                    db.execute(STORE, (*place, flight["carrier"], delay_of(flight)))
            # At least once: store, then commit. The result of a repeated record replaces itself.
            after = {m.partition(): m.offset() + 1 for m in messages}
            positions = [TopicPartition(arguments.topic, *at) for at in after.items()]
            consumer.commit(offsets=positions, asynchronous=True)
            done += len(messages)
    finally:
        consumer.close()  # waits for the last commit
    average = db.execute("SELECT avg(minutes), count(*) FROM delays").fetchone()
    db.close()
    log.info("%d flights done now; average delay %.3f of %d rows", done, *average)


def main() -> None:
    """Read the arguments and run or rewind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("run", "rewind"))
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="flights")
    add("--group", default="delay-table")
    add("--code", type=int, choices=CODE, default=2, help="run: 1 has the bug, 2 has not")
    add("--since", type=lambda day: datetime.fromisoformat(day).replace(tzinfo=UTC))
    add("--db", default="delays.db", metavar="FILE")
    add("--idle-s", type=float, help="run: end after this long without a record")
    arguments = parser.parse_args()
    if arguments.do == "rewind" and arguments.since is None:
        parser.error("rewind needs --since, a date or a time in UTC, such as 2013-10-01T06:00")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        (run if arguments.do == "run" else rewind)(arguments)
    except KafkaException as error:
        sys.exit(f"Stopped: {error.args[0].str()}")


if __name__ == "__main__":
    main()
