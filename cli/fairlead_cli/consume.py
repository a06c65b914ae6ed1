"""`fairlead consume`: read records of a topic, without a consumer group."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError
from fairlead_cli.options import bootstrap_option, data_option, output_option

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Consumer, Message

    from fairlead_cli.records.start import Start

# librdkafka holds the interpreter while it waits: this bounds how late Ctrl-C is noticed.
POLL_S = 0.1
BATCH_MAX = 1000

EPILOG = """\b
Examples:
  fairlead consume greetings
  fairlead consume greetings --from end
  fairlead consume greetings --from beginning --count 10 --timeout-ms 5000 -o json
  fairlead consume flights --keys --until-end | sort | uniq -c
  fairlead consume flights --partition 2 --from 1000 --count 1
  fairlead consume flights --from 2013-06-01T12:00
  fairlead consume flights --from 15m

It ends after --count records, after --timeout-ms without a record, at the end with --until-end,
or with Ctrl-C. Fewer than --count records before the time-out is a failure (exit code 1).
"""


@click.command(epilog=EPILOG)
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="beginning|end|OFFSET|TIMESTAMP",
    help="Where to start: also a time (2013-06-01T12:00), @MILLISECONDS, or an age (15m, 2h, 7d).",
)
@click.option("--partition", type=click.IntRange(min=0), help="Only this one.  [default: all]")
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=1), help="Stop when no record came for so long."
)
@click.option("--until-end", is_flag=True, help="Stop at the end of every partition.")
@click.option("-k", "--keys", is_flag=True, help="Print the key before the value.")
@click.option("--offsets", is_flag=True, help="Print partition:offset.")
@click.option("--timestamps", is_flag=True, help="Print the timestamp (UTC).")
@click.option("--headers", is_flag=True, help="Print the headers.")
@click.option("--key-separator", default="\t", help="Between what is printed.  [default: TAB]")
@click.option("--separator", default="\n", help="After each record.  [default: newline]")
@data_option
@bootstrap_option
@output_option("text", "json", "raw")
def consume(
    *,
    topic: str,
    start: str,
    partition: int | None,
    count: int | None,
    timeout_ms: int | None,
    until_end: bool,
    keys: bool,
    offsets: bool,
    timestamps: bool,
    headers: bool,
    key_separator: str,
    separator: str,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> None:
    """Read records of TOPIC: text for people, -o json (a line a record), -o raw (exact bytes)."""
    from fairlead_cli.client.connection import build_consumer, require_topic
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.records.sink import SinkOptions, build_formatter
    from fairlead_cli.records.start import parse_start

    try:
        begin = parse_start(start, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from error
    options = SinkOptions(keys, headers, timestamps, offsets, key_separator, separator)
    formatter = build_formatter(output, options)
    address = resolve_bootstrap(bootstrap, data)
    consumer = build_consumer(address)
    try:
        metadata = require_topic(consumer, topic)
        partitions = choose_partitions(metadata, topic, partition)
        assign(consumer, address, topic, partitions, begin)
        reader = Reader(consumer, topic, len(partitions), timeout_ms=timeout_ms)
        written = 0
        for message in reader.read(count=count, until_end=until_end):
            sys.stdout.buffer.write(formatter(to_record(message)))
            written += 1
            if reader.is_drained:
                sys.stdout.buffer.flush()
        sys.stdout.buffer.flush()
    finally:
        consumer.close()
    if count is not None and written < count and not until_end:
        raise CliError(
            f"{written} of {count} records came before {timeout_ms} ms passed without one"
        )


def choose_partitions(metadata: Any, topic: str, partition: int | None) -> list[int]:
    """Those to read; a partition without leader is named, and joins in when it has one."""
    known = sorted(metadata.partitions)
    if partition is not None and partition not in known:
        raise CliError(
            f"topic '{topic}' has no partition {partition}",
            hint=f"It has {len(known)}: 0 to {len(known) - 1}.",
        )
    chosen = known if partition is None else [partition]
    offline = [number for number in chosen if metadata.partitions[number].leader < 0]
    if offline and len(offline) == len(chosen):
        raise CliError(
            f"no partition of topic '{topic}' that was asked for has a leader",
            hint="See which brokers run:  fairlead status",
        )
    if offline:
        names = ", ".join(str(number) for number in offline)
        click.echo(f"Without a leader, not read: partition {names}.", err=True)
    return [number for number in chosen if number not in offline]


def assign(
    consumer: Consumer, bootstrap: str, topic: str, partitions: list[int], start: Start
) -> None:
    """Assign by hand, at offsets that are known before the first fetch.

    "End" means the end as it is now: left to the first fetch, a record written in between would
    be skipped.
    """
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.offsets import find_times, read_ends
    from fairlead_cli.records.start import FromBeginning, FromOffset, FromTime

    if isinstance(start, FromBeginning):
        places = dict.fromkeys(partitions, OFFSET_BEGINNING)
    else:
        admin = build_admin(bootstrap)
        ends = read_ends(admin, topic, partitions)
        match start:
            case FromOffset(offset):
                places = {p: clip_offset(topic, p, offset, ends) for p in partitions}
            case FromTime(timestamp_ms):
                found = find_times(admin, topic, partitions, timestamp_ms)
                places = {p: at if at >= 0 else ends[p][1] for p, at in found.items()}
            case _:
                places = {p: end for p, (_, end) in ends.items()}
    consumer.assign([TopicPartition(topic, p, offset) for p, offset in places.items()])


def clip_offset(topic: str, partition: int, offset: int, ends: dict[int, tuple[int, int]]) -> int:
    """The offset where it exists. Of several partitions the shorter ones begin at their end."""
    first, end = ends[partition]
    if first <= offset <= end:
        return offset
    if len(ends) > 1:
        return first if offset < first else end
    raise CliError(
        f"offset {offset} is not in partition {partition} of topic '{topic}'",
        hint=f"It holds offsets {first} to {end - 1}."
        if end > first
        else f"It is empty; the next record gets offset {end}.",
    )


class Reader:
    """Hands out records until a limit is met. `is_drained`: nothing more is at hand right now."""

    def __init__(
        self, consumer: Consumer, topic: str, partition_count: int, *, timeout_ms: int | None
    ) -> None:
        self.consumer = consumer
        self.topic = topic
        self.partition_count = partition_count
        self.timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self.is_drained = False
        self.ended: set[int] = set()

    def read(self, *, count: int | None, until_end: bool) -> Any:
        """Generator of messages."""
        remaining = count
        last_seen = time.monotonic()
        while remaining is None or remaining > 0:
            batch = self.take_batch(BATCH_MAX if remaining is None else min(BATCH_MAX, remaining))
            for index, message in enumerate(batch):
                self.is_drained = index == len(batch) - 1
                yield message
            if remaining is not None:
                remaining -= len(batch)
            now = time.monotonic()
            if batch:
                last_seen = now
                continue
            if until_end and len(self.ended) == self.partition_count:
                return
            if self.timeout_s is not None and now - last_seen >= self.timeout_s:
                return

    def take_batch(self, size: int) -> list[Message]:
        """What is at hand, waiting only for the first one."""
        timeout_s = POLL_S if self.timeout_s is None else min(POLL_S, self.timeout_s)
        first = self.consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first]
        if size > 1:
            messages += self.consumer.consume(size - 1, 0)
        return [message for message in messages if not self.is_event(message)]

    def is_event(self, message: Message) -> bool:
        """Ends of partitions are remembered, real errors raised; records are no events."""
        from confluent_kafka import KafkaError

        from fairlead_cli.client.connection import build_error

        error = message.error()
        if error is None:
            self.ended.discard(message.partition())
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            self.ended.add(message.partition())
            return True
        if error.retriable() or error.code() in transient_codes():
            return True
        raise build_error(f"cannot read topic '{self.topic}'", error)


def transient_codes() -> tuple[int, ...]:
    """librdkafka reports lost connections and goes on by itself."""
    from confluent_kafka import KafkaError

    return (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


def to_record(message: Message) -> Any:
    """Our own tuple: formats know nothing of librdkafka."""
    from fairlead_cli.records.sink import TIMESTAMP_TYPES, ConsumedRecord

    kind, timestamp_ms = message.timestamp()
    return ConsumedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        TIMESTAMP_TYPES[kind],
        timestamp_ms,
        message.key(),
        message.value(),
        message.headers() or [],
    )
