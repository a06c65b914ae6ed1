"""Send records with librdkafka, at a limited rate if wanted, and count the outcomes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import CliError
from fairlead_cli.output import format_count, note
from fairlead_cli.records.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import KafkaError, Message, Producer

    from fairlead_cli.records.partitioner import Partitioner
    from fairlead_cli.records.source import SourceRecord

INTERRUPTED_FLUSH_S = 5.0
FLUSH_POLL_S = 0.5
# librdkafka blocks the interpreter while it waits; this limits how late Ctrl-C takes effect.
PACE_POLL_S = 0.1
# A shorter wait costs more than it is worth; the next wait is longer by that time.
SHORTEST_WAIT_S = 0.001
# A failover takes at most two seconds; after a longer silence the user gets a message.
SILENCE_TOLD_S = 5.0
# Between two polls for delivery reports: so many records, or so long if they come slowly.
POLL_EVERY = 256
POLL_INTERVAL_S = 0.5


@dataclass(slots=True)
class Deliveries:
    """The outcomes of records. `first_error` explains the first failure, `failed` counts them."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    failed_bytes: int = 0
    first_error: KafkaError | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def written_bytes(self) -> int:
        """Bytes of keys and values that are written, as far as the outcomes are known."""
        return self.sent_bytes - self.failed_bytes

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Handle a failed delivery (librdkafka calls this: delivery.report.only.error)."""
        if error is not None:
            self.fail(error, _size(message.key(), message.value()))

    def fail(self, error: KafkaError, size: int) -> None:
        """Count a record of `size` bytes that is not written."""
        self.failed += 1
        self.failed_bytes += size
        self.first_error = self.first_error or error


def _size(key: bytes | str | None, value: bytes | str | None) -> int:
    return len(key or b"") + len(value or b"")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where records go: a fixed partition, one that a function chooses, or librdkafka's choice."""

    topic: str
    partition: int | None
    partitioner: Partitioner | None
    rate_per_s: float | None
    is_transactional: bool = False

    def choose(self, record: SourceRecord) -> int | None:
        """Return the partition; None if librdkafka chooses it."""
        if self.partitioner is None:
            return self.partition
        return self.partitioner(record.key, record.value)


def send_all(
    producer: Producer,
    destination: Destination,
    records: Iterator[SourceRecord],
    deliveries: Deliveries,
    advance: Callable[[int, int], None],
) -> None:
    """Send all records and wait for the answers; on Ctrl-C only for records already under way.

    CliError if no more can be sent: the producer is fenced, or its transaction has lost a record.
    """
    from fairlead_cli.client.connection import kafka_errors

    rate = destination.rate_per_s
    pace = None if rate is None else Pace(rate, time.monotonic())
    polled_at, is_told = time.monotonic(), False
    try:
        with kafka_errors(f"records cannot be written to '{destination.topic}'"):
            for record in records:
                if pace is not None:
                    wait(producer, pace.take_delay(time.monotonic()))
                enqueue(producer, destination, record, deliveries)
                deliveries.sent += 1
                deliveries.sent_bytes += _size(record.key, record.value)
                now = time.monotonic()
                if deliveries.sent % POLL_EVERY == 0 or now - polled_at >= POLL_INTERVAL_S:
                    polled_at = now
                    producer.poll(0)
                    if deliveries.first_error is not None and not is_told:
                        is_told = True
                        tell_failure(destination, deliveries.first_error)
                advance(record.size, deliveries.sent)
            wait_for_answers(producer)
    except (CliError, KeyboardInterrupt):
        # The records before an invalid line, or before Ctrl-C, still count.
        deliveries.failed += flush_rest(producer)
        if not destination.is_transactional:
            done = deliveries.sent - deliveries.failed
            click.echo(
                f"Stopped early: {format_count(done, 'record')} written to {destination.topic}.",
                err=True,
            )
        raise


def flush_rest(producer: Producer) -> int:
    """Wait a while for the answers to records that were sent; return how many have none."""
    from confluent_kafka import KafkaException

    try:
        left: int = producer.flush(INTERRUPTED_FLUSH_S)
    except (KafkaException, SystemError):
        return len(producer)  # A fatal error, about which the caller has been told.
    return left


def tell_failure(destination: Destination, error: KafkaError) -> None:
    """Tell that records are lost while their source goes on, maybe for days (`tail -f`).

    CliError if the others are in the same transaction: it cannot be committed any more.
    """
    from fairlead_cli.client.connection import build_error, explain

    if destination.is_transactional:
        what = f"the transaction cannot be written to '{destination.topic}'"
        raise build_error(what, error, name=destination.topic)
    note(f"Not all records are written to {destination.topic}, going on: {explain(error)}")


def wait_for_answers(producer: Producer) -> None:
    """Wait until each record has its outcome; tell the user once if that takes long."""
    least = producer.flush(FLUSH_POLL_S)
    left, changed_at, is_told = least, time.monotonic(), False
    while left > 0:
        left = producer.flush(FLUSH_POLL_S)
        if left < least:
            least, changed_at = left, time.monotonic()
        elif left > 0 and not is_told and time.monotonic() - changed_at >= SILENCE_TOLD_S:
            is_told = True
            click.echo(
                f"{format_count(left, 'record')} not acknowledged yet: waiting for a leader that "
                "takes them.",
                err=True,
            )


def wait(producer: Producer, delay_s: float) -> None:
    """Wait, and handle the delivery reports that arrive meanwhile."""
    deadline = time.monotonic() + delay_s
    while (left := deadline - time.monotonic()) > SHORTEST_WAIT_S:
        producer.poll(min(left, PACE_POLL_S))


def enqueue(
    producer: Producer, destination: Destination, record: SourceRecord, deliveries: Deliveries
) -> None:
    """Pass one record to librdkafka; wait while its queue is full.

    CliError if it takes no more records, or if one that it refuses is part of a transaction.
    """
    from confluent_kafka import KafkaError, KafkaException

    from fairlead_cli.client.connection import build_error

    partition = destination.choose(record)
    place = {} if partition is None else {"partition": partition}
    if record.timestamp_ms is not None:
        place["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(
                destination.topic,
                value=record.value,
                key=record.key,
                headers=record.headers or None,
                on_delivery=deliveries.on_delivery,
                **place,
            )
        except BufferError:
            producer.poll(FLUSH_POLL_S)
        except KafkaException as exception:
            # Too large for a request: librdkafka does not send it to the broker.
            error = exception.args[0]
            if destination.is_transactional or error.code() == KafkaError._FATAL:
                producer.poll(0)  # Raises the reason of a fatal error, which this error lacks.
                what = f"a record cannot be written to '{destination.topic}'"
                raise build_error(what, error, name=destination.topic) from exception
            deliveries.fail(error, _size(record.key, record.value))
            return
        else:
            return
