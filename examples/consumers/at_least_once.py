"""At least once: every flight goes into an archive, and none is left out.

    python examples/consumers/at_least_once.py --idle-s 5

The offset is committed *after* the work. A crash between the two repeats the last batch: the
archive may have a flight twice, so its readers drop duplicates by partition and offset.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

log = logging.getLogger("at_least_once")

# These refusals of a commit only cause duplicates: the group is rebalancing, or has assigned these
# partitions to others, who begin at the last commit.
NOT_OURS_NOW = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._ASSIGNMENT_LOST,
}


def connect(arguments: argparse.Namespace) -> Consumer:
    """Return a consumer that commits only on request."""
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        # A client that commits periodically would also commit records that are not archived yet.
        "enable.auto.commit": False,
        # Where a group begins that has no offset yet, or whose offset the log no longer has: at the
        # oldest record. `latest` would skip records.
        "auto.offset.reset": "earliest",
    }
    if arguments.member:
        settings["group.instance.id"] = arguments.member
    return Consumer(settings, logger=log)


def archive(out: IO[bytes], messages: list[Message]) -> None:
    """Write the records to the disk; only then may the offset advance."""
    for message in messages:
        line = {
            "partition": message.partition(),
            "offset": message.offset(),
            "flight": json.loads(message.value()),
        }
        out.write(json.dumps(line).encode() + b"\n")
    out.flush()
    os.fsync(out.fileno())


def commit(consumer: Consumer, messages: list[Message]) -> None:
    """Commit the offset after these. A refusal loses nothing: the records come again."""
    after = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
    positions = [TopicPartition(*place, offset) for place, offset in after.items()]
    try:
        consumer.commit(offsets=positions, asynchronous=False)
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() not in NOT_OURS_NOW and not error.retriable():
            raise
        log.warning("Not committed, these %d may come again: %s", len(messages), error.str())


def run(arguments: argparse.Namespace, stopping: threading.Event, out: IO[bytes]) -> int:
    """Poll, work and commit until a signal; return the number of archived flights."""
    consumer = connect(arguments)
    # No callback is needed: partitions change only inside consume(), and before each call all
    # records that it returned earlier are archived and committed.
    consumer.subscribe([arguments.topic])
    archived = 0
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
            if messages:
                time.sleep(arguments.work_ms / 1000)
                archive(out, messages)
                commit(consumer, messages)
                archived += len(messages)
    finally:
        consumer.close()  # leaves the group, so that others take over at once
    return archived


def end_torn_line(out: IO[bytes]) -> None:
    """End a last line that a crash has cut, so that the next record begins on its own line."""
    if out.seek(0, os.SEEK_END):
        out.seek(-1, os.SEEK_END)
        if out.read(1) != b"\n":
            out.write(b"\n")


def main() -> None:
    """Read the arguments, run until SIGINT or SIGTERM, print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="flights")
    add("--group", default="flight-archive")
    add("--member", metavar="NAME", help="a name that stays across restarts (static membership)")
    add("--batch", type=int, default=500, help="flights per commit: what a crash may double")
    add("--work-ms", type=float, default=0, help="how long one batch takes")
    add("--out", default="flights.jsonl", metavar="FILE", help="the archive")
    add("--idle-s", type=float, help="end after this long without a record (default: never)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with Path(arguments.out).open("a+b") as out:
        end_torn_line(out)
        try:
            archived = run(arguments, stopping, out)
        except KafkaException as error:
            sys.exit(f"Stopped: {error.args[0].str()}")
    log.info("%d flights archived", archived)


if __name__ == "__main__":
    main()
