"""`fairlead broker disks`: what a broker has in each log directory, and moves between them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.errors import CliError
from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.client.answering import Address
    from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsResponse

DESCRIBE_VERSION: Final = 4
ALTER_VERSION: Final = 2
POLL_S: Final = 0.5

EPILOG = """\b
Examples:
  fairlead broker disks 2
  fairlead broker disks 2 --move orders:0 --to /disk2/fairlead --wait
  fairlead broker disks 2 --move orders:0 --move orders:3 --to /disk2/fairlead

Moves replicas of this broker to another of the folders in its `log.dirs`, while it serves them. The
folder where a replica is calls its move back. Without --wait it ends when the moves are noted, and
`fairlead broker disks 2` shows how far they are. How fast:
replica.alter.log.dirs.io.max.bytes.per.second of the broker.
"""


@click.command("disks", epilog=EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@click.option("--move", "moved", multiple=True, metavar="TOPIC:PARTITION", help="What moves.")
@click.option("--to", "target", metavar="FOLDER", help="Where to, as written in `log.dirs`.")
@click.option("--wait", "is_waiting", is_flag=True, help="End when all is there.")
@click.option("--timeout", "timeout_s", type=float, default=600.0, show_default=True)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    broker_id: int,
    moved: tuple[str, ...],
    target: str | None,
    is_waiting: bool,
    timeout_s: float,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> None:
    """Show the log directories of a broker, and move replicas between them."""
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import print_json

    if bool(moved) != (target is not None):
        raise CliError("--move and --to go together")
    replicas = [parse_replica(text) for text in moved]
    at = find_broker(resolve_bootstrap(bootstrap, data), broker_id)
    if target is not None:
        ask_for_moves(at, replicas, target)
        deadline = time.monotonic() + timeout_s
        while is_waiting and (missing := not_there(describe(at), replicas, target)):
            if time.monotonic() > deadline:
                raise CliError(f"{', '.join(missing)} not there after {timeout_s:g} s; it goes on")
            time.sleep(POLL_S)
    rows = directory_rows(describe(at))
    if output == "json":
        print_json(rows)
    else:
        show(rows)


def parse_replica(text: str) -> tuple[str, int]:
    """Return topic and partition of `TOPIC:PARTITION`. CliError."""
    topic, _, index = text.rpartition(":")
    if not topic or not (index.isascii() and index.isdigit()):
        raise CliError(f"{text!r} is not TOPIC:PARTITION, such as orders:0")
    return topic, int(index)


def find_broker(addresses: str, broker_id: int) -> Address:
    """Return where a broker is: only it knows its disks. CliError if it is not in service."""
    from fairlead_cli.client.answering import Address
    from fairlead_cli.client.connection import build_admin, fetch_metadata

    found = fetch_metadata(build_admin(addresses)).brokers.get(broker_id)
    if found is None:
        raise CliError(f"broker {broker_id} is not in service")
    return Address(found.host, found.port)


def ask_for_moves(at: Address, replicas: list[tuple[str, int]], target: str) -> None:
    """Ask for all; CliError with each that is refused."""
    from fairlead_cli.client.wire_call import call_broker
    from fairlead_cli.wire_exchange import name_error
    from fairlead_wire.messages.alter_replica_log_dirs import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )

    topics: dict[str, list[int]] = {}
    for topic, index in replicas:
        topics.setdefault(topic, []).append(index)
    wanted = [AlterReplicaLogDirTopic(topic, indexes) for topic, indexes in topics.items()]
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(target, wanted)])
    reply = call_broker(at.host.strip("[]"), at.port, request, ALTER_VERSION)
    refused = [
        f"{topic.topic_name}:{each.partition_index}: {name_error(each.error_code)}"
        for topic in reply.results
        for each in topic.partitions
        if each.error_code
    ]
    if refused:
        raise CliError("; ".join(refused), hint="Its folders:  fairlead broker disks ID")


def describe(at: Address) -> DescribeLogDirsResponse:
    """Ask a broker what it has. CliError."""
    from fairlead_cli.client.wire_call import call_broker
    from fairlead_cli.wire_exchange import name_error
    from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

    request = DescribeLogDirsRequest(topics=None)
    reply: DescribeLogDirsResponse = call_broker(
        at.host.strip("[]"), at.port, request, DESCRIBE_VERSION
    )
    if reply.error_code:
        raise CliError(f"it does not tell what it holds: {name_error(reply.error_code)}")
    return reply


def not_there(
    reply: DescribeLogDirsResponse, replicas: list[tuple[str, int]], target: str
) -> list[str]:
    """Return replicas that still move. CliError if one neither does nor is where it should be."""
    held: set[tuple[str, int]] = set()
    moving: set[tuple[str, int]] = set()
    for directory in reply.results:
        for topic in directory.topics:
            for each in topic.partitions:
                if directory.log_dir == target:
                    (moving if each.is_future_key else held).add((topic.name, each.partition_index))
    lost = [f"{topic}:{index}" for topic, index in replicas if (topic, index) not in held | moving]
    if lost:
        raise CliError(f"{', '.join(lost)} does not move any more: the broker's log says why")
    return [f"{topic}:{index}" for topic, index in replicas if (topic, index) in moving]


def directory_rows(reply: DescribeLogDirsResponse) -> list[dict[str, Any]]:
    """Return one entry a directory; a failed one has nothing but its error."""
    from fairlead_cli.wire_exchange import name_error

    rows: list[dict[str, Any]] = []
    for directory in reply.results:
        held = [(topic.name, each) for topic in directory.topics for each in topic.partitions]
        rows.append(
            {
                "path": directory.log_dir,
                "error": name_error(directory.error_code) if directory.error_code else None,
                "replicas": sum(1 for _, each in held if not each.is_future_key),
                "bytes": sum(each.partition_size for _, each in held),
                "free": directory.usable_bytes,
                "moving": [
                    {
                        "topic": topic,
                        "partition": each.partition_index,
                        "bytes": each.partition_size,
                        "offsetLag": each.offset_lag,
                    }
                    for topic, each in held
                    if each.is_future_key
                ],
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table, and what moves."""
    from fairlead_cli.output import format_bytes, print_table

    print_table(
        ("folder", "state", "replicas", "bytes", "free", "moving here"),
        [
            [
                row["path"],
                row["error"] or "in use",
                str(row["replicas"]),
                format_bytes(row["bytes"]),
                "-" if row["error"] else format_bytes(row["free"]),
                str(len(row["moving"])),
            ]
            for row in rows
        ],
        right=("replicas", "bytes", "free", "moving here"),
    )
    for row in rows:
        for each in row["moving"]:
            name = f"{each['topic']}:{each['partition']}"
            click.echo(f"{name} moves to {row['path']}: {each['offsetLag']} offsets are missing.")
