"""`fairlead produce`: turn lines, CSV rows or JSON lines into records."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from fairlead_cli.errors import InputError
from fairlead_cli.name_completion import complete_topics
from fairlead_cli.options import (
    bootstrap_option,
    data_option,
    output_option,
    parse_assignments,
    require_name,
)
from fairlead_cli.sending_options import (
    SendingOptions,
    sending_options,
    transaction_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairlead_cli.client.delivery import Deliveries, Destination
    from fairlead_cli.records.source import SourceOptions, SourceRecord

STDIN = Path("-")

EPILOG = """\b
Examples:
  echo 'hello' | fairlead produce greetings
  printf 'k1:v1\\nk2:v2\\n' | fairlead produce greetings --key-separator :
  fairlead produce flights --input csv flights.csv --key-field carrier
  fairlead produce events --input jsonl events.jsonl --key-field user --header source=import
  fairlead produce events --acks 1 --compression zstd < lines.txt
  fairlead produce events --partitioner round-robin --rate 100 < lines.txt
  fairlead produce events --partitioner my_keys:by_country --key-separator : < lines.txt
  fairlead produce events --batch-size 65536 --linger-ms 50 < lines.txt
  fairlead produce events --retries 0 < lines.txt
  fairlead produce events --transactional-id import-1 --commit-every 10000 < lines.txt

CSV rows become JSON objects with the names in the first line; an empty cell is null. JSON lines are
sent as they are. A key goes to the same partition as with Java clients, unless --partitioner says
otherwise: your own function is called with (key, value, partitions) and returns a number.
"""


@click.command(epilog=EPILOG)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", type=click.Path(path_type=Path), default=STDIN, required=False)
@click.option(
    "--input",
    "input_format",
    type=click.Choice(["lines", "csv", "jsonl"]),
    default="lines",
    show_default=True,
    help="How to cut the input into records.",
)
@click.option(
    "--key-separator", metavar="TEXT", callback=require_name, help="Lines are KEY<TEXT>VALUE."
)
@click.option("--key-field", metavar="NAME", help="CSV or JSON field to use as the key.")
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
    help="CSV or JSON field to use as the timestamp: ISO 8601 or milliseconds since 1970.",
)
@click.option("--null-marker", metavar="TEXT", help="A key, value or CSV cell that means null.")
@click.option("--numbers", is_flag=True, help="Convert CSV cells that are numbers to JSON numbers.")
@sending_options
@transaction_options
@click.option("--quiet", is_flag=True, help="Show no progress bar and no summary.")
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
    quiet: bool,
    data: Path,
    bootstrap: str | None,
    output: str,
    **sending_values: Any,
) -> None:
    """Write records to TOPIC from FILE or stdin: lines, CSV rows or JSON lines."""
    from fairlead_cli.client.connection import build_producer, require_topic
    from fairlead_cli.client.delivery import Deliveries, send_all
    from fairlead_cli.client.stop_signals import ends_as_interrupts
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.client.transaction import in_transactions
    from fairlead_cli.records.source import SourceOptions

    if input_format == "lines" and (key_field or header_fields or timestamp_field):
        raise click.UsageError("lines have no fields: use --input csv or --input jsonl")
    if input_format != "csv" and numbers:
        raise click.UsageError("--numbers is for cells of --input csv")
    if input_format != "lines" and key_separator:
        raise click.UsageError("--key-separator is for lines; name a field with --key-field")
    sending = SendingOptions(**sending_values)
    sending.check()
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
    with open_input(file) as stream, ends_as_interrupts():
        producer = build_producer(resolve_bootstrap(bootstrap, data), sending.settings)
        destination = choose_destination(require_topic(producer, topic), topic, sending)
        if stream.isatty():
            click.echo("One record a line; Ctrl-D ends.", err=True)
        records = choose_reader(input_format)(stream, options)
        deliveries = Deliveries()
        with show_progress(stream, topic, quiet=quiet) as advance:
            if sending.transactional_id is None:
                send_all(producer, destination, records, deliveries, advance)
            else:
                with in_transactions(
                    producer, records, topic=topic, commit_every=sending.commit_every
                ) as records_in_transactions:
                    send_all(producer, destination, records_in_transactions, deliveries, advance)
    report(topic, deliveries, output, quiet=quiet)


@contextmanager
def open_input(file: Path) -> Iterator[IO[bytes]]:
    """Yield the file, or stdin, which is left open."""
    if file == STDIN:
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    with stream:
        yield stream


def choose_reader(
    input_format: str,
) -> Callable[[IO[bytes], SourceOptions], Iterator[SourceRecord]]:
    """Return the function that reads one format."""
    from fairlead_cli.records.source import read_csv_rows, read_json_lines, read_lines

    return {"lines": read_lines, "csv": read_csv_rows, "jsonl": read_json_lines}[input_format]


def choose_destination(metadata: Any, topic: str, sending: SendingOptions) -> Destination:
    """Return where to write; raise CliError if the partition does not exist.

    Otherwise the error would come only after the delivery time-out.
    """
    from fairlead_cli.client.delivery import Destination
    from fairlead_cli.client.places import build_no_partition_error
    from fairlead_cli.records.partitioner import build_partitioner

    count = len(metadata.partitions)
    partition = sending.partition
    if partition is not None and partition >= count:
        raise build_no_partition_error(topic, str(partition), range(count))
    name = sending.partitioner or "murmur2"
    leaderless = {index for index, each in metadata.partitions.items() if each.leader < 0}
    partitioner = build_partitioner(
        name, count, batch_bytes=sending.batch_bytes, leaderless=leaderless
    )
    return Destination(
        topic,
        partition,
        partitioner,
        sending.rate,
        is_transactional=sending.transactional_id is not None,
    )


@contextmanager
def show_progress(
    stream: IO[bytes], topic: str, *, quiet: bool
) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal's stderr when reading a file; otherwise nothing."""
    if quiet or not sys.stderr.isatty() or stream.isatty():
        yield lambda _size, _sent: None
        return
    from fairlead_cli.records.progress import progress_bar

    # A pipe has no size, and its name, "<stdin>", is no file.
    total = None if stream is sys.stdin.buffer else Path(stream.name).stat().st_size
    with progress_bar(f"{topic}", total) as advance:
        yield advance


def report(topic: str, deliveries: Deliveries, output: str, *, quiet: bool) -> None:
    """Print a summary on stderr (stdout with -o json); raise an error if anything failed."""
    from fairlead_cli.client.connection import build_error
    from fairlead_cli.output import format_bytes, format_count, print_json

    seconds = max(time.monotonic() - deliveries.started, 1e-9)
    written = deliveries.sent - deliveries.failed
    if output == "json":
        document = {"topic": topic, "records": written, "failed": deliveries.failed}
        print_json(document | {"bytes": deliveries.written_bytes, "seconds": round(seconds, 3)})
    elif not quiet:
        rate = f"{written / seconds:,.0f}/s, {format_bytes(deliveries.written_bytes)}"
        count = format_count(written, "record")
        click.echo(f"{count} to {topic} in {seconds:.1f} s ({rate})", err=True)
    if deliveries.first_error is not None:
        lost = format_count(deliveries.failed, "record")
        raise build_error(
            f"{lost} could not be written to '{topic}'", deliveries.first_error, name=topic
        )
