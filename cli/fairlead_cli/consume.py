"""`fairlead consume`: read records of topics, alone or as a member of a consumer group."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.connection import READ_COMMITTED, READ_UNCOMMITTED
from fairlead_cli.errors import CliError
from fairlead_cli.name_completion import complete_groups, complete_topics
from fairlead_cli.options import bootstrap_option, data_option, output_option, require_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import Message

    from fairlead_cli.client.reader import Limits
    from fairlead_cli.records.start import Start

CLASSIC_ASSIGNORS = ("cooperative-sticky", "range", "roundrobin")
CONSUMER_ASSIGNORS = ("uniform", "range")

EPILOG = """\b
Examples:
  fairlead consume greetings
  fairlead consume greetings --from end
  fairlead consume greetings --from beginning --count 10 --timeout-ms 5000 -o json
  fairlead consume flights --keys --until-end | sort | uniq -c
  fairlead consume flights --partition 2 --from 1000 --count 1
  fairlead consume flights --from 2013-06-01T12:00
  fairlead consume payments --until-end --isolation read_uncommitted
  fairlead consume orders payments --group billing
  fairlead consume orders --group billing --instance-id billing-1 --assignor range
  fairlead consume orders --group billing --group-protocol consumer
  fairlead consume orders --group billing --commit never --until-end

The command ends after --count records, after --timeout-ms without a record, at the end with
--until-end, or with Ctrl-C. Fewer than --count records before the time-out are a failure (exit
code 1).

In a group it begins at the group's committed offsets, and commits the offsets of printed records
every second and at its end: after a crash some records may come again, but none is missed.
"""


def group_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a group's member, which are collected into GroupOptions."""
    options = (
        click.option(
            "-g",
            "--group",
            callback=require_name,
            metavar="GROUP",
            shell_complete=complete_groups,
            help="Join this consumer group and share its partitions.",
        ),
        click.option(
            "--assignor",
            type=click.Choice([*CLASSIC_ASSIGNORS, "uniform"]),
            help="How the group assigns partitions; all members of a classic group need the "
            "same. [default: cooperative-sticky, uniform]",
        ),
        click.option(
            "--group-protocol",
            type=click.Choice(["classic", "consumer"]),
            help="consumer: the protocol of KIP-848, in which the broker assigns partitions, by "
            "--assignor uniform or range.  [default: classic]",
        ),
        click.option(
            "--instance-id",
            callback=require_name,
            metavar="NAME",
            help="Join as a static member: it keeps its partitions while it restarts.",
        ),
        click.option(
            "--commit",
            type=click.Choice(["always", "never"]),
            help=(
                "Commit the offsets of printed records, or do not change the group's offsets. "
                "[default: always]"
            ),
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Options for a group's member; None means that an option is absent."""

    group: str | None
    assignor: str | None
    group_protocol: str | None
    instance_id: str | None
    commit: str | None

    def check(self, start: Start, partition: int | None) -> None:
        """Raise UsageError for options that contradict each other."""
        from fairlead_cli.records.start import FromBeginning, FromEnd

        if self.group is None:
            for name in ("assignor", "group_protocol", "instance_id", "commit"):
                if getattr(self, name) is not None:
                    raise click.UsageError(f"--{name.replace('_', '-')} needs --group")
            return
        known = CONSUMER_ASSIGNORS if self.group_protocol == "consumer" else CLASSIC_ASSIGNORS
        if self.assignor is not None and self.assignor not in known:
            raise click.UsageError(
                f"--assignor {self.assignor} is not one of the {self.group_protocol or 'classic'} "
                f"protocol, which has {', '.join(known)}"
            )
        if partition is not None:
            raise click.UsageError("--partition and --group: the group decides who reads what")
        if not isinstance(start, FromBeginning | FromEnd):
            raise click.UsageError(
                "with --group, --from is beginning or end, and counts only where nothing is "
                "committed. Move the group:  fairlead group reset "
                f"{shlex.quote(self.group)} --all-topics --to-earliest{cluster_arguments()}"
            )

    def protocol_settings(self) -> dict[str, str]:
        """Return librdkafka's settings; each of the two protocols refuses the other's."""
        if self.group_protocol != "consumer":
            return {"partition.assignment.strategy": self.assignor or CLASSIC_ASSIGNORS[0]}
        settings = {"group.protocol": "consumer"}
        if self.assignor is not None:
            settings["group.remote.assignor"] = self.assignor
        return settings


@click.command(epilog=EPILOG)
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="beginning|end|OFFSET|TIMESTAMP",
    help=(
        "Where to start; also a time (2013-06-01T12:00), @MILLISECONDS, or an age (15m, 2h, 7d)."
    ),
)
@click.option(
    "--partition", type=click.IntRange(min=0), help="Only this partition.  [default: all]"
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=1), help="Stop when no record has come for this time."
)
@click.option("--until-end", is_flag=True, help="Stop at the end of every partition.")
@click.option("-k", "--keys", is_flag=True, help="Print the key before the value.")
@click.option("--offsets", is_flag=True, help="Print partition:offset.")
@click.option("--timestamps", is_flag=True, help="Print the timestamp (UTC).")
@click.option("--headers", is_flag=True, help="Print the headers.")
@click.option(
    "--key-separator", default="\t", help="Text between the printed fields.  [default: TAB]"
)
@click.option("--separator", default="\n", help="Text after each record.  [default: newline]")
@click.option(
    "--isolation",
    type=click.Choice([READ_COMMITTED, READ_UNCOMMITTED]),
    default=READ_COMMITTED,
    show_default=True,
    help=(
        "read_committed: up to the first open transaction, without aborted records; "
        "read_uncommitted: all."
    ),
)
@group_options
@data_option
@bootstrap_option
@output_option("text", "json", "raw")
def consume(
    *,
    topics: tuple[str, ...],
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
    isolation: str,
    data: Path,
    bootstrap: str | None,
    output: str,
    **group_values: Any,
) -> None:
    """Read records of topics: text for people, -o json (a line a record), -o raw (exact bytes)."""
    from fairlead_cli.client.reader import Limits
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.records.sink import SinkOptions, build_formatter
    from fairlead_cli.records.start import parse_start

    try:
        begin = parse_start(start, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from error
    names = tuple(dict.fromkeys(topics))
    if partition is not None and len(names) > 1:
        raise click.UsageError("--partition goes with a single topic")
    membership = GroupOptions(**group_values)
    membership.check(begin, partition)
    options = SinkOptions(
        keys, headers, timestamps, offsets, key_separator, separator, topics=len(names) > 1
    )
    formatter = build_formatter(output, options)
    read_headers = HeaderReader() if output == "json" or (headers and output == "text") else None

    def write(batch: list[Message]) -> None:
        for message in batch:
            sys.stdout.buffer.write(formatter(to_record(message, read_headers)))
        sys.stdout.buffer.flush()

    address = resolve_bootstrap(bootstrap, data)
    limits = Limits(count, timeout_ms, until_end)
    reading = Reading(names, partition, begin, limits, isolation, write)
    if membership.group is None:
        written = read_alone(address, reading)
    else:
        written = read_in_group(address, reading, membership)
    if count is not None and written < count and not until_end:
        raise CliError(
            f"{written} of {count} records came before {timeout_ms} ms passed without one"
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read, where to start, when to stop, and how to write it."""

    topics: tuple[str, ...]
    partition: int | None
    start: Start
    limits: Limits
    isolation: str
    write: Callable[[list[Message]], None]

    @property
    def name(self) -> str:
        """Name of the topics for error messages."""
        names = ", ".join(f"'{topic}'" for topic in self.topics)
        return f"topic{'' if len(self.topics) == 1 else 's'} {names}"


def read_alone(address: str, reading: Reading) -> int:
    """Read all partitions from the chosen start; commit nothing. Return the number of records."""
    from fairlead_cli.client.assignment import assign, choose_partitions
    from fairlead_cli.client.connection import build_consumer, require_topic
    from fairlead_cli.client.places import Place
    from fairlead_cli.client.reader import Reader

    consumer = build_consumer(address, isolation=reading.isolation)
    written = 0
    try:
        places = []
        for topic in reading.topics:
            metadata = require_topic(consumer, topic)
            numbers = choose_partitions(metadata, topic, reading.partition)
            places += [Place(topic, number) for number in numbers]
        assignment = assign(consumer, address, places, reading.start)
        for batch in Reader(consumer, reading.name, assignment).read(reading.limits):
            reading.write(batch)
            written += len(batch)
    finally:
        consumer.close()
    return written


def read_in_group(address: str, reading: Reading, options: GroupOptions) -> int:
    """Read the assigned partitions, commit written records, leave cleanly. Return the number."""
    from fairlead_cli.client.assignment import Assignment
    from fairlead_cli.client.connection import build_error, build_group_consumer, require_topic
    from fairlead_cli.client.membership import Membership
    from fairlead_cli.client.reader import Reader
    from fairlead_cli.client.stop_signals import StopSignals
    from fairlead_cli.output import format_count, note
    from fairlead_cli.records.start import FromEnd

    is_from_end = isinstance(reading.start, FromEnd)
    assignment = Assignment()
    member = Membership(
        str(options.group),
        assignment,
        start_name="end" if is_from_end else "beginning",
        is_committing=options.commit != "never",
    )
    settings = {
        "group.id": options.group,
        "auto.offset.reset": "latest" if is_from_end else "earliest",
        "isolation.level": reading.isolation,
        "on_commit": member.on_commit,
        **options.protocol_settings(),
    }
    if options.instance_id is not None:
        settings["group.instance.id"] = options.instance_id
    written = 0
    failure = None
    with StopSignals() as signals:
        consumer = build_group_consumer(address, settings)
        try:
            for topic in reading.topics:
                require_topic(consumer, topic)
            member.start(consumer, reading.topics)
            reader = Reader(consumer, reading.name, assignment, group=member.group)
            for batch in reader.read(reading.limits, signals.is_stopped):
                reading.write(batch)
                member.mark_written(batch)
                written += len(batch)
                member.maybe_commit(consumer)
        finally:
            failure = member.finish(consumer)
            consumer.close()
        if failure is not None:
            raise build_error(
                f"{format_count(written, 'record')} written, but the last offsets of group "
                f"'{options.group}' could not be committed: they will be read again",
                failure,
            )
        note(f"group {options.group}: {describe_end(written, options)}")
    return written


def describe_end(written: int, options: GroupOptions) -> str:
    """Return what remains in the group."""
    from fairlead_cli.output import format_count

    is_committed = written > 0 and options.commit != "never"
    committed = "offsets committed" if is_committed else "nothing committed"
    gone = "left"
    if options.instance_id is not None:
        gone = f"{options.instance_id} stays a member until its session times out"
    return f"{format_count(written, 'record')}, {committed}, {gone}"


class HeaderReader:
    """Reads the headers of messages; reports headers that librdkafka's client cannot decode."""

    def __init__(self) -> None:
        self._has_told = False

    def __call__(self, message: Message) -> list[tuple[str, bytes | None]] | None:
        """Return the headers; None if a header's name is not UTF-8."""
        from fairlead_cli.output import note

        try:
            # Call this only once: after an error the client would return an incomplete list.
            return message.headers() or []
        except (SystemError, UnicodeDecodeError):
            if not self._has_told:
                place = f"{message.topic()}:{message.partition()}:{message.offset()}"
                note(
                    f"The headers of {place} cannot be shown, nor others with a name that is not "
                    "UTF-8 text."
                )
                self._has_told = True
            return None


def to_record(message: Message, read_headers: HeaderReader | None) -> Any:
    """Convert a message for the formats, with headers only if they are shown."""
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
        [] if read_headers is None else read_headers(message),
    )
