"""`fairlead produce`: lines, CSV rows or JSON lines become records."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError
from fairlead_cli.options import bootstrap_option, data_option, output_option, parse_assignments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import KafkaError, Producer

    from fairlead_cli.records.source import SourceOptions, SourceRecord

STDIN = Path("-")
DELIVERY_TIMEOUT_MS = 60_000
INTERRUPTED_FLUSH_S = 5.0
FLUSH_POLL_S = 0.5
# How many records pass between two looks at delivery reports and the progress bar.
POLL_EVERY = 256

EPILOG = """\b
Examples:
  echo 'hello' | fairlead produce greetings
  printf 'k1:v1\\nk2:v2\\n' | fairlead produce greetings --key-separator :
  fairlead produce flights --input csv flights.csv --key-field carrier
  fairlead produce events --input jsonl events.jsonl --key-field user --header source=import
  fairlead produce events --acks 1 --compression zstd < lines.txt

CSV rows become JSON objects by the names in the first line; an empty cell is null. JSON lines are
sent as they are. A key goes to the same partition as with Java's clients.
"""


@dataclass(slots=True)
class Deliveries:
    """What became of the records. `first_error` explains, `failed` counts."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    first_error: KafkaError | None = None
    started: float = field(default_factory=time.monotonic)

    def on_delivery(self, error: KafkaError | None, _message: object) -> None:
        """librdkafka calls this for failures only (delivery.report.only.error)."""
        if error is None:
            return
        self.failed += 1
        self.first_error = self.first_error or error


@click.command(epilog=EPILOG)
@click.argument("topic")
@click.argument("file", type=click.Path(path_type=Path), default=STDIN, required=False)
@click.option(
    "--input",
    "input_format",
    type=click.Choice(["lines", "csv", "jsonl"]),
    default="lines",
    show_default=True,
    help="How to cut the input into records.",
)
@click.option("--key-separator", metavar="TEXT", help="Lines are KEY<TEXT>VALUE.")
@click.option("--key-field", metavar="NAME", help="CSV or JSON field that is the key.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="KEY=VALUE",
    help="A header for every record; may be repeated.",
)
@click.option(
    "--header-field",
    "header_fields",
    multiple=True,
    metavar="NAME",
    help="CSV or JSON field to copy into a header; may be repeated.",
)
@click.option(
    "--timestamp-field",
    metavar="NAME",
    help="CSV or JSON field that is the record's time: ISO 8601 or milliseconds since 1970.",
)
@click.option("--null-marker", metavar="TEXT", help="A key, value or CSV cell that means null.")
@click.option("--numbers", is_flag=True, help="CSV cells that are numbers become JSON numbers.")
@click.option("--partition", type=click.IntRange(min=0), help="Send everything there.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Which brokers must have a record before it counts; `all` also means no duplicates.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--quiet", is_flag=True, help="No progress bar and no summary.")
@data_option
@bootstrap_option
@output_option("text", "json")
def produce(
    *,
    topic: str,
    file: Path,
    input_format: str,
    key_separator: str | None,
    key_field: str | None,
    headers: tuple[str, ...],
    header_fields: tuple[str, ...],
    timestamp_field: str | None,
    null_marker: str | None,
    numbers: bool,
    partition: int | None,
    acks: str,
    compression: str,
    quiet: bool,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> None:
    """Write records to TOPIC from FILE or stdin: lines, CSV rows or JSON lines."""
    from fairlead_cli.client.connection import build_producer, require_topic
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.records.source import SourceOptions

    if input_format == "lines" and (key_field or header_fields or timestamp_field):
        raise click.UsageError("lines have no fields: use --input csv or --input jsonl")
    if input_format != "lines" and key_separator:
        raise click.UsageError("--key-separator is for lines; name a field with --key-field")
    fixed = parse_assignments(headers, "--header")
    options = SourceOptions(
        name="stdin" if file == STDIN else str(file),
        key_separator=key_separator,
        key_field=key_field,
        header_fields=header_fields,
        timestamp_field=timestamp_field,
        headers=tuple((name, value.encode()) for name, value in fixed.items()),
        null_marker=null_marker,
        numbers=numbers,
    )
    with open_input(file) as stream:
        settings = {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "delivery.report.only.error": True,
        }
        producer = build_producer(resolve_bootstrap(bootstrap, data), settings)
        check_partition(require_topic(producer, topic), topic, partition)
        if stream.isatty():
            click.echo("One record a line; Ctrl-D ends.", err=True)
        records = choose_reader(input_format)(stream, options)
        deliveries = Deliveries()
        with show_progress(stream, topic, quiet=quiet) as advance:
            send_all(producer, (topic, partition), records, deliveries, advance)
    report(topic, deliveries, output, quiet=quiet)


@contextmanager
def open_input(file: Path) -> Iterator[IO[bytes]]:
    """The file, or stdin, which is left open."""
    if file == STDIN:
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}") from error
    with stream:
        yield stream


def choose_reader(
    input_format: str,
) -> Callable[[IO[bytes], SourceOptions], Iterator[SourceRecord]]:
    """The function that reads one format."""
    from fairlead_cli.records.source import read_csv_rows, read_json_lines, read_lines

    return {"lines": read_lines, "csv": read_csv_rows, "jsonl": read_json_lines}[input_format]


def check_partition(metadata: Any, topic: str, partition: int | None) -> None:
    """A partition that is not there would only fail after the delivery time-out."""
    if partition is not None and partition not in metadata.partitions:
        raise CliError(
            f"topic '{topic}' has no partition {partition}",
            hint=f"It has {len(metadata.partitions)}: 0 to {len(metadata.partitions) - 1}.",
        )


def send_all(
    producer: Producer,
    target: tuple[str, int | None],
    records: Iterator[SourceRecord],
    deliveries: Deliveries,
    advance: Callable[[int, int], None],
) -> None:
    """Send everything and wait for the answers; on Ctrl-C only for what is on its way."""
    try:
        for record in records:
            enqueue(producer, target, record, deliveries)
            deliveries.sent += 1
            deliveries.sent_bytes += len(record.value or b"") + len(record.key or b"")
            if deliveries.sent % POLL_EVERY == 0:
                producer.poll(0)
            advance(record.size, deliveries.sent)
        while producer.flush(FLUSH_POLL_S) > 0:
            pass
    except (CliError, KeyboardInterrupt):
        # What was read before the bad line, or before Ctrl-C, still counts.
        deliveries.failed += producer.flush(INTERRUPTED_FLUSH_S)
        done = deliveries.sent - deliveries.failed
        click.echo(f"Stopped early: {done:,} records were written to {target[0]}.", err=True)
        raise


def enqueue(
    producer: Producer,
    target: tuple[str, int | None],
    record: SourceRecord,
    deliveries: Deliveries,
) -> None:
    """Hand one record to librdkafka, waiting while its queue is full."""
    from confluent_kafka import KafkaException

    topic, partition = target
    place = {} if partition is None else {"partition": partition}
    if record.timestamp_ms is not None:
        place["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=record.headers or None,
                on_delivery=deliveries.on_delivery,
                **place,
            )
        except BufferError:
            producer.poll(FLUSH_POLL_S)
        except KafkaException as exception:
            # Too large for a request: the broker never sees it.
            deliveries.on_delivery(exception.args[0], None)
            return
        else:
            return


@contextmanager
def show_progress(
    stream: IO[bytes], topic: str, *, quiet: bool
) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's stderr when reading a file; otherwise nothing."""
    if quiet or not sys.stderr.isatty() or stream.isatty():
        yield lambda _size, _sent: None
        return
    from fairlead_cli.records.progress import progress_bar

    total = Path(stream.name).stat().st_size if isinstance(stream.name, str) else None
    if stream is sys.stdin.buffer:
        total = None
    with progress_bar(f"{topic}", total) as advance:
        yield advance


def report(topic: str, deliveries: Deliveries, output: str, *, quiet: bool) -> None:
    """A summary on stderr (stdout with -o json), or an error when anything failed."""
    from fairlead_cli.client.connection import build_error
    from fairlead_cli.output import format_bytes, format_count, print_json

    seconds = max(time.monotonic() - deliveries.started, 1e-9)
    written = deliveries.sent - deliveries.failed
    if output == "json":
        document = {"topic": topic, "records": written, "failed": deliveries.failed}
        print_json(document | {"bytes": deliveries.sent_bytes, "seconds": round(seconds, 3)})
    elif not quiet:
        rate = f"{written / seconds:,.0f}/s, {format_bytes(deliveries.sent_bytes)}"
        count = format_count(written, "record")
        click.echo(f"{count} to {topic} in {seconds:.1f} s ({rate})", err=True)
    if deliveries.first_error is not None:
        lost = format_count(deliveries.failed, "record")
        raise build_error(f"{lost} could not be written to '{topic}'", deliveries.first_error)
