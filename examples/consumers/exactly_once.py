"""Exactly once: every flight becomes one record of another topic, whatever crashes and whenever.

    python examples/consumers/exactly_once.py --idle-s 5

The results and the group's offset are written in one transaction: either both are there or neither.
A reader of the results with `isolation.level=read_committed` sees only those of committed
transactions.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("exactly_once")

ANSWER_S = 60


def connect(arguments: argparse.Namespace) -> tuple[Consumer, Producer]:
    """Return a consumer that commits nothing itself, and the producer that commits for it."""
    bootstrap = {"bootstrap.servers": arguments.bootstrap}
    settings = {
        **bootstrap,
        "group.id": arguments.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        # Read only committed flights, if they were written in transactions. This is the default of
        # this client, but not of all others.
        "isolation.level": "read_committed",
    }
    if arguments.member:
        settings["group.instance.id"] = arguments.member
    producer = Producer(
        {
            **bootstrap,
            # Each process has its own name, the same after a restart: then the open transaction of
            # a killed process is aborted at once. With a new name at each start, readers of the
            # partitions would wait until it times out.
            "transactional.id": f"{arguments.group}-{arguments.member or 'only'}",
            "transaction.timeout.ms": 60_000,
            # When a connection opens or closes, this client looks for the group's coordinator
            # again. Without that, it may wait forever for one that is gone: the time-out of
            # `send_offsets_to_transaction` has no effect (librdkafka's issues 5511 and 5456).
            "connections.max.idle.ms": 5_000,
        },
        logger=log,
    )
    until_answered(producer.init_transactions, ANSWER_S)
    return Consumer(settings, logger=log), producer


def until_answered(call: Callable[..., None], *arguments: object) -> None:
    """Repeat the call while the answer is only late: the request stays the same."""
    while True:
        try:
            call(*arguments)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
            log.warning("Asking again: %s", failure.args[0].str())
        else:
            return


def delay_of(message: Message) -> bytes:
    """Do the work: return the result of one flight."""
    flight = json.loads(message.value())
    result = {
        "flight": f"{flight['carrier']} {flight['flight']}",
        "minutes": flight["dep_delay"],
        "from": [message.partition(), message.offset()],
    }
    return json.dumps(result).encode()


def carry_over(consumer: Consumer, producer: Producer, topic: str, messages: list[Message]) -> bool:
    """Write the results and the offset after their flights, or nothing; tell which."""
    after = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
    offsets = [TopicPartition(*place, offset) for place, offset in after.items()]
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(topic, delay_of(message), message.key())
        # The group metadata identify this member: if its partitions have been assigned to another
        # one, the group refuses, and the transaction is aborted.
        group = consumer.consumer_group_metadata()
        until_answered(producer.send_offsets_to_transaction, offsets, group, ANSWER_S)
        until_answered(producer.commit_transaction, ANSWER_S)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        if not error.txn_requires_abort():
            raise  # Another process has this transactional id, so this one has to end.
        log.warning("%d flights aborted: %s", len(messages), error.str())
        until_answered(producer.abort_transaction, ANSWER_S)
        return False
    return True


def go_back(consumer: Consumer, messages: list[Message]) -> None:
    """Seek to the committed offsets: the flights of an aborted transaction come again."""
    places = {(m.topic(), m.partition()) for m in messages}
    wanted = [TopicPartition(*place) for place in places]
    for at in consumer.committed(wanted, timeout=ANSWER_S):
        offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(TopicPartition(at.topic, at.partition, offset))


def run(arguments: argparse.Namespace, stopping: threading.Event) -> int:
    """Poll, work and commit until a signal; return the number of flights carried over."""
    consumer, producer = connect(arguments)
    consumer.subscribe([arguments.topic])
    done = 0
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
            if carry_over(consumer, producer, arguments.out, messages):
                done += len(messages)
            else:
                go_back(consumer, messages)
    finally:
        consumer.close()
    return done


def create_output(arguments: argparse.Namespace) -> None:
    """Create the topic with as many partitions as the results need, here three."""
    admin = AdminClient({"bootstrap.servers": arguments.bootstrap})
    try:
        admin.create_topics([NewTopic(arguments.out, 3)])[arguments.out].result()
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def main() -> None:
    """Read the arguments, run until SIGINT or SIGTERM, print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="flights")
    add("--group", default="flight-delays")
    add("--member", metavar="NAME", help="a name that stays across restarts; one a process")
    add("--batch", type=int, default=500, help="flights per transaction")
    add("--out", default="flight-delays", metavar="TOPIC", help="where results go")
    add("--idle-s", type=float, help="end after this long without a record (default: never)")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        create_output(arguments)
        done = run(arguments, stopping)
    except KafkaException as error:
        sys.exit(f"Stopped: {error.args[0].str()}")
    log.info("%d flights carried over", done)


if __name__ == "__main__":
    main()
