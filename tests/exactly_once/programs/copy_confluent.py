"""Consume, transform, produce with confluent-kafka; made to be killed at any time.

    python copy_confluent.py BOOTSTRAP INPUT OUTPUT GROUP NAME

An output is the input's key and number and the CRC of its value. One transaction in seven is
written whole, marked `doomed`, and aborted: no reader may see that. It ends with code 3 where a
producer must be made anew; whoever started it starts it again.
"""

import signal
import sys
import threading
import zlib
from collections.abc import Callable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

BATCH = 200
DOOMED_EACH = 7
ANSWER_TIMEOUT_S = 30
MUST_START_ANEW = 3


def transform(value: bytes) -> bytes:
    number = value.split()[0]
    return b"%s %08x" % (number, zlib.crc32(value))


def retry(call: Callable[..., object], *arguments: object) -> None:
    """Again while the answer is only late: the outcome is the same one."""
    while True:
        try:
            call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            print("late:", call.__name__, error, flush=True)
        else:
            return


def is_to_be_aborted(error: KafkaError) -> bool:
    return bool(error.txn_requires_abort())


def rewind(consumer: Consumer, messages: list[Message]) -> None:
    """To what is committed: the aborted transaction's input is read again."""
    places = {(m.topic(), m.partition()) for m in messages}
    wanted = [TopicPartition(*place) for place in places]
    for at in consumer.committed(wanted, timeout=ANSWER_TIMEOUT_S):
        offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(TopicPartition(at.topic, at.partition, offset))


def carry_over(
    consumer: Consumer, producer: Producer, output: str, messages: list[Message], *, doomed: bool
) -> bool:
    """In one transaction; tells whether it was committed."""
    producer.begin_transaction()
    try:
        for message in messages:
            mark = b"doomed " if doomed else b""
            producer.produce(output, mark + transform(message.value()), message.key())
        if doomed:
            producer.flush(ANSWER_TIMEOUT_S)
            retry(producer.abort_transaction, ANSWER_TIMEOUT_S)
            return False
        reached = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
        offsets = [TopicPartition(*place, offset) for place, offset in reached.items()]
        group = consumer.consumer_group_metadata()
        retry(producer.send_offsets_to_transaction, offsets, group, ANSWER_TIMEOUT_S)
        retry(producer.commit_transaction, ANSWER_TIMEOUT_S)
    except KafkaException as error:
        if not is_to_be_aborted(error.args[0]):
            raise
        print("aborted:", error, flush=True)
        retry(producer.abort_transaction, ANSWER_TIMEOUT_S)
        return False
    return True


def main() -> None:
    bootstrap, source, output, group, name = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 4000,
            "heartbeat.interval.ms": 500,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
            # Else it may wait for ever for a group coordinator that is gone: docs/transactions.md.
            "connections.max.idle.ms": 5_000,
        }
    )
    retry(producer.init_transactions, ANSWER_TIMEOUT_S)
    consumer.subscribe([source])
    transactions = 0
    while not stopping.is_set():
        messages = [m for m in consumer.consume(BATCH, timeout=0.1) if m.error() is None]
        if not messages:
            continue
        transactions += 1
        doomed = transactions % DOOMED_EACH == 0
        if not carry_over(consumer, producer, output, messages, doomed=doomed):
            rewind(consumer, messages)
    consumer.close()


if __name__ == "__main__":
    try:
        main()
    except KafkaException as error:
        print("must start anew:", error, flush=True)
        sys.exit(MUST_START_ANEW)
