"""Effectively once: totals per airline in SQLite, exact whatever crashes and whenever.

    python examples/consumers/effectively_once_sqlite.py --idle-s 5

A result and the offset after its records are written in one transaction of the database. Only the
offset *there* is valid; the group just assigns the partitions. So a record is counted if and only
if the stored offset is after it.
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

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

log = logging.getLogger("effectively_once")

SCHEMA = """
CREATE TABLE IF NOT EXISTS totals (
    carrier TEXT PRIMARY KEY, flights INTEGER, cancelled INTEGER, delay_minutes INTEGER);
CREATE TABLE IF NOT EXISTS positions (
    topic TEXT, partition INTEGER, next_offset INTEGER, PRIMARY KEY (topic, partition));
"""
ADD = """
INSERT INTO totals VALUES (?, 1, ?, ?) ON CONFLICT (carrier) DO UPDATE SET
    flights = flights + 1, cancelled = cancelled + excluded.cancelled,
    delay_minutes = delay_minutes + excluded.delay_minutes
"""
MOVE = "UPDATE positions SET next_offset = ? WHERE topic = ? AND partition = ? AND next_offset = ?"


class OvertakenError(Exception):
    """Another process has counted on this partition since it was assigned to this one."""


class Totals:
    """The database: the totals, and the offset of each partition."""

    def __init__(self, path: str) -> None:
        # Several members may write: each waits for its turn.
        self.db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")  # a commit outlives a power cut as well
        self.db.executescript(SCHEMA)
        self.reached: dict[tuple[str, int], int] = {}  # as we last saw it stored

    def take(self, place: tuple[str, int]) -> int:
        """Return where to continue with an assigned partition."""
        new = (*place, OFFSET_BEGINNING)
        self.db.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?)", new)
        query = "SELECT next_offset FROM positions WHERE topic = ? AND partition = ?"
        self.reached[place] = self.db.execute(query, place).fetchone()[0]
        return self.reached[place]

    def count(self, messages: list[Message]) -> None:
        """Count all of these and store the offsets after them, or do nothing."""
        after = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
        self.db.execute("BEGIN IMMEDIATE")
        with self.db:  # commits at its end, and rolls back if anything is raised
            for place, offset in after.items():
                # Compare and set: a slow member that has lost its partition without knowing it
                # finds another offset here, and counts nothing.
                if self.db.execute(MOVE, (offset, *place, self.reached[place])).rowcount != 1:
                    raise OvertakenError(f"partition {place[1]} has moved on without us")
            for message in messages:
                flight = json.loads(message.value())
                delay = flight["dep_delay"]
                self.db.execute(ADD, (flight["carrier"], delay is None, delay or 0))
        self.reached.update(after)


def run(arguments: argparse.Namespace, stopping: threading.Event, totals: Totals) -> int:
    """Poll and count until a signal; return the number of counted flights."""
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        # Nothing reads these offsets; they show people the lag of the group.
        "enable.auto.commit": True,
        # The log may no longer have the stored offset (the pause was longer than the retention).
        # Any other start would silently lose records or count them twice.
        "auto.offset.reset": "error",
    }
    if arguments.member:
        settings["group.instance.id"] = arguments.member
    consumer = Consumer(settings, logger=log)

    def go_on(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            at.offset = totals.take((at.topic, at.partition))
        consumer.assign(partitions)

    consumer.subscribe([arguments.topic], on_assign=go_on)
    counted = 0
    last_record = time.monotonic()
    try:
        while not stopping.is_set():
            messages = consumer.consume(arguments.batch, timeout=0.5)
            if messages or not consumer.assignment():
                last_record = time.monotonic()
            elif arguments.idle_s and time.monotonic() - last_record > arguments.idle_s:
                break
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            if not messages:
                continue
            try:
                totals.count(messages)
                counted += len(messages)
            except OvertakenError as error:
                log.warning("Counted nothing of %d flights: %s", len(messages), error)
                go_on(consumer, consumer.assignment())
    finally:
        consumer.close()
    return counted


def main() -> None:
    """Read the arguments, run until SIGINT or SIGTERM, print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="flights")
    add("--group", default="airline-totals")
    add("--member", metavar="NAME", help="a name that stays across restarts (static membership)")
    add("--batch", type=int, default=500, help="flights per transaction")
    add("--db", default="totals.db", metavar="FILE")
    add("--idle-s", type=float, help="end after this long without a record (default: never)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    totals = Totals(arguments.db)
    try:
        counted = run(arguments, stopping, totals)
    except KafkaException as error:
        sys.exit(f"Stopped: {error.args[0].str()}")
    log.info("%d flights counted", counted)


if __name__ == "__main__":
    main()
