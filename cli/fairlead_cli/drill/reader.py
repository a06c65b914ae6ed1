"""Reads a drill's topic back from its beginning, with a client that took no part in the drill."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, build_consumer, kafka_errors
from fairlead_cli.drill.history import FoundRecord, decode_value
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

BATCH = 1000
STALL_TIMEOUT_S = 30.0
POLL_S = 0.2
# Key of a record with an invalid value: the checker has no history of this key.
DAMAGED_KEY = "(damaged)"


def read_back(bootstrap: str, topic: str, partitions: int) -> Iterator[FoundRecord]:
    """Yield every committed record; CliError if the cluster does not answer any more."""
    from confluent_kafka import TopicPartition

    consumer = build_consumer(bootstrap)
    try:
        with kafka_errors(f"cannot read back topic '{topic}'"):
            ends = {number: find_end(consumer, topic, number) for number in range(partitions)}
            open_ends = {number: end for number, end in ends.items() if end > 0}
            consumer.assign([TopicPartition(topic, number, 0) for number in open_ends])
            yield from read_until(consumer, open_ends)
    finally:
        consumer.close()


def find_end(consumer: Any, topic: str, number: int) -> int:
    """Return the high watermark.

    Leaders may still be moving back. If one moves during this request, librdkafka (2.16) returns
    "unknown partition" instead of asking again.
    """
    from confluent_kafka import KafkaException, TopicPartition

    give_up_at = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            _, end = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=REQUEST_TIMEOUT_S
            )
        except KafkaException:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(POLL_S)
        else:
            return int(end)


def read_until(consumer: Any, open_ends: dict[int, int]) -> Iterator[FoundRecord]:
    """Yield the records below the ends; `open_ends` is empty afterwards."""
    last = time.monotonic()
    while open_ends:
        messages = consumer.consume(BATCH, POLL_S)
        if messages:
            last = time.monotonic()
        elif time.monotonic() - last > STALL_TIMEOUT_S:
            raise CliError(
                f"reading back stopped before the end of partition {min(open_ends)}",
                hint=f"The cluster does not answer:  fairlead status{cluster_arguments()}",
            )
        for message in messages:
            number = message.partition()
            error = message.error()
            if error is None:
                yield decode(message)
            elif error.name() != "_PARTITION_EOF":
                raise CliError(f"cannot read back partition {number}: {error.str()}")
            # The end-of-partition event means the same if the last offsets have no record.
            if number in open_ends and message.offset() + (error is None) >= open_ends[number]:
                del open_ends[number]


def decode(message: Any) -> FoundRecord:
    """Return the record in a message's value; it is damaged if the message has another key."""
    try:
        key, sequence = decode_value(message.value() or b"")
        if key.encode() != message.key():
            raise ValueError("its key is another one")
    except ValueError:
        key, sequence = DAMAGED_KEY, -1
    return FoundRecord(message.partition(), message.offset(), key, sequence)
