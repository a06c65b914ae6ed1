"""Global order: one runway, one line of departures, the same for whoever reads it.

    python examples/consumers/global_order.py write --name east --count 1000
    python examples/consumers/global_order.py read --idle-s 5

A partition keeps its order, a topic does not, so this topic has one partition. The price: one
broker leads it, and one member of a group reads it while the others stand by to take over.
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

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata, TopicPartition

log = logging.getLogger("global_order")


def ensure_topic(arguments: argparse.Namespace) -> None:
    """Create the topic if it is missing. -1: the cluster's default number of replicas."""
    admin = KafkaAdminClient(bootstrap_servers=arguments.bootstrap, bootstrap_timeout_ms=10_000)
    try:
        admin.create_topics([NewTopic(arguments.topic, 1, -1)])
    except TopicAlreadyExistsError:
        pass
    finally:
        admin.close()


def refuse_partitions(topic: str, partitions: set[int] | None) -> None:
    """Refuse a second partition: the topic would have no order."""
    if partitions and len(partitions) > 1:
        sys.exit(f"Topic {topic} has {len(partitions)} partitions; global order needs exactly one.")


def write(arguments: argparse.Namespace, stopping: threading.Event) -> None:
    """Write departures in the order in which this writer clears them."""
    ensure_topic(arguments)
    producer = KafkaProducer(
        bootstrap_servers=arguments.bootstrap,
        acks="all",
        # A retry after a lost answer would write a record twice, or after its successor. Sequence
        # numbers let the broker detect that, and keep the order with several requests in flight.
        enable_idempotence=True,
        linger_ms=5,
    )
    refuse_partitions(arguments.topic, producer.partitions_for(arguments.topic))
    answers = []
    try:
        for number in range(1, arguments.count + 1):
            if stopping.is_set():
                break
            departure = {"runway": arguments.name, "number": number}
            answers.append(producer.send(arguments.topic, json.dumps(departure).encode()))
            time.sleep(arguments.pause_ms / 1000)
        for answer in answers:
            answer.get(timeout=30)  # raises what went wrong: the order after a gap is worthless
    finally:
        producer.close(timeout=10)
    log.info("%d departures written", len(answers))


def read(arguments: argparse.Namespace, stopping: threading.Event) -> None:
    """Append departures to a file; of several processes that run this, one works."""
    ensure_topic(arguments)
    consumer = KafkaConsumer(
        arguments.topic,
        bootstrap_servers=arguments.bootstrap,
        group_id=arguments.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # How long no member works after the working one has died.
        session_timeout_ms=arguments.session_timeout_ms,
        heartbeat_interval_ms=arguments.session_timeout_ms // 3,
    )
    place = TopicPartition(arguments.topic, 0)
    done = 0
    last_record = time.monotonic()
    try:
        refuse_partitions(arguments.topic, consumer.partitions_for_topic(arguments.topic))
        with Path(arguments.out).open("a", encoding="utf-8") as out:
            while not stopping.is_set():
                records = consumer.poll(timeout_ms=200, max_records=100).get(place, [])
                if records or not consumer.assignment():
                    last_record = time.monotonic()
                elif arguments.idle_s and time.monotonic() - last_record > arguments.idle_s:
                    break
                if not records:
                    continue
                for record in records:
                    departure = json.loads(record.value)
                    print(record.offset, departure["runway"], departure["number"], file=out)
                out.flush()
                done += len(records)
                # After the work, so a takeover may repeat a few but never skips or reorders any.
                try:
                    consumer.commit({place: OffsetAndMetadata(records[-1].offset + 1, "", -1)})
                except CommitFailedError:
                    log.warning("Taken for dead meanwhile: the next member repeats these")
    finally:
        consumer.close()  # leaves the group: who stands by takes over at once
    log.info("%d departures read", done)


def main() -> None:
    """Read the arguments, write or read until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("write", "read"))
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="departures")
    add("--name", default="east", help="write: the runway")
    add("--count", type=int, default=1000, help="write: how many departures")
    add("--pause-ms", type=float, default=0, help="write: time between two departures")
    add("--group", default="departure-board")
    add("--session-timeout-ms", type=int, default=10_000)
    add("--out", default="departures.log", metavar="FILE", help="read: where they go")
    add("--idle-s", type=float, help="read: end after this long without a record")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        (write if arguments.do == "write" else read)(arguments, stopping)
    except KafkaTimeoutError:
        sys.exit(f"No cluster answers at {arguments.bootstrap}. Start one:  fairlead up --detach")
    except KafkaError as error:
        sys.exit(f"Stopped: {error}")


if __name__ == "__main__":
    main()
