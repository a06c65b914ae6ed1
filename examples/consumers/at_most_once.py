"""At most once: a text message to the passengers of each late or cancelled flight, never two.

    python examples/consumers/at_most_once.py --reset earliest --idle-s 5

The offset is committed *before* the work. A crash between the two loses the present batch (up to
--batch flights are skipped for good), and nothing is ever done twice.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

log = logging.getLogger("at_most_once")


def connect(arguments: argparse.Namespace) -> Consumer:
    """Return a consumer that commits only on request."""
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        # A client that commits periodically would commit after the work: at least once.
        "enable.auto.commit": False,
        # Where a group begins without a committed offset. If a group has worked before and lost its
        # offsets (they expire), `earliest` would send every text again.
        "auto.offset.reset": arguments.reset,
    }
    if arguments.member:
        settings["group.instance.id"] = arguments.member
    return Consumer(settings, logger=log)


def commit(consumer: Consumer, messages: list[Message]) -> bool:
    """Commit; return whether the group's offsets are after all of these, on every partition.

    In doubt (another member has the partition now, there was no answer in time) it returns False:
    the commit may have failed, so another member may get these records again.
    """
    after = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
    positions = [TopicPartition(*place, offset) for place, offset in after.items()]
    try:
        committed = consumer.commit(offsets=positions, asynchronous=False)
    except KafkaException as error:
        log.warning("Passing over %d flights: %s", len(messages), error.args[0].str())
        return False
    failed = [at for at in committed if at.error is not None]
    for at in failed:
        log.warning("Passing over %d flights: %s", len(messages), at.error.str())
    return not failed


def send_text(out: IO[str], message: Message, flight: dict[str, Any]) -> None:
    """Do what must not happen twice; here it writes a line to a file."""
    delay = flight["dep_delay"]
    news = "is cancelled" if delay is None else f"leaves {delay} minutes late"
    name = f"{flight['carrier']} {flight['flight']} to {flight['dest']}"
    print(message.partition(), message.offset(), f"Flight {name} {news}.", file=out, flush=True)


def run(arguments: argparse.Namespace, stopping: threading.Event, out: IO[str]) -> int:
    """Poll, commit and work until a signal; return the number of sent texts."""
    consumer = connect(arguments)
    consumer.subscribe([arguments.topic])
    sent = 0
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
            if not messages or not commit(consumer, messages):
                continue
            # From here on only this process has these flights. It finishes them even after a
            # signal, because no other process would.
            for message in messages:
                flight = json.loads(message.value())
                delay = flight["dep_delay"]
                if delay is None or delay >= arguments.late_minutes:
                    time.sleep(arguments.work_ms / 1000)
                    send_text(out, message, flight)
                    sent += 1
    finally:
        consumer.close()  # leaves the group, so that others take over at once
    return sent


def main() -> None:
    """Read the arguments, run until SIGINT or SIGTERM, print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="flights")
    add("--group", default="passenger-texts")
    add("--member", metavar="NAME", help="a name that stays across restarts (static membership)")
    add("--reset", choices=("latest", "earliest", "error"), default="latest")
    add("--batch", type=int, default=100, help="flights per commit: what a crash may lose")
    add("--late-minutes", type=int, default=60, help="how late is worth a text")
    add("--work-ms", type=float, default=0, help="how long one text takes")
    add("--out", default="texts.log", metavar="FILE", help="where texts go")
    add("--idle-s", type=float, help="end after this long without a record (default: never)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with Path(arguments.out).open("a", encoding="utf-8") as out:
        try:
            sent = run(arguments, stopping, out)
        except KafkaException as error:
            sys.exit(f"Stopped: {error.args[0].str()}")
    log.info("%d texts sent", sent)


if __name__ == "__main__":
    main()
