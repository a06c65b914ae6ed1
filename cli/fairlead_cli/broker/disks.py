"""`fairlead broker disks`: show a broker's log directories, and move replicas between them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.broker.log_dir_requests import describe, find_broker, try_moves
from fairlead_cli.errors import CliError, InputError
from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import (
    INT32_MAX,
    FiniteRange,
    bootstrap_option,
    data_option,
    parse_number,
    table_or_json,
)
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.client.answering import Address
    from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsResponse

POLL_S: Final = 0.5

EPILOG = """\b
Examples:
  fairlead broker disks 2
  fairlead broker disks 2 --move orders:0 --to /disk2/fairlead --wait
  fairlead broker disks 2 --move orders:0 --move orders:3 --to /disk2/fairlead
  fairlead broker disks 2 --drain /disk1/fairlead --wait
  fairlead broker disks 2 --undrain /disk1/fairlead

--move moves replicas of this broker to another folder of its `log.dirs`, while it serves them. To
cancel a move, name the folder where the replica still is. Without --wait the command ends when the
broker has accepted the moves, and `fairlead broker disks 2` shows their progress. The broker's
setting replica.alter.log.dirs.io.max.bytes.per.second limits their speed.

--drain empties a folder, so that its disk can be removed: the folder gets no new replicas
(cordoned.log.dirs), and its replicas move to the other folders. At its end the command prints what
to do next. With --wait it goes on through restarts of the broker. Exit codes: 0 the folder is
empty, or, without --wait, being emptied; 1 it is not empty after --timeout, or a replica cannot
move; 2 the broker has no such folder. --undrain cancels this; it also works for a removed folder.
"""


@click.command("disks", epilog=EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@click.option(
    "--move", "moved", multiple=True, metavar="TOPIC:PARTITION", help="The partitions to move."
)
@click.option(
    "--to", "target", metavar="FOLDER", help="The target directory, as written in `log.dirs`."
)
@click.option(
    "--drain",
    "drained",
    metavar="FOLDER",
    help="Move all replicas from this directory to the others.",
)
@click.option(
    "--undrain", "undrained", metavar="FOLDER", help="Let this directory get replicas again."
)
@click.option("--wait", "is_waiting", is_flag=True, help="Return when all replicas have moved.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds that --wait waits, restarts of the broker included.",
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    broker_id: int,
    moved: tuple[str, ...],
    target: str | None,
    drained: str | None,
    undrained: str | None,
    is_waiting: bool,
    timeout_s: float,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> None:
    """Show the log directories of a broker, move replicas between them, and empty one."""
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note_if_interrupted, print_json

    if bool(moved) != (target is not None):
        raise InputError("--move needs --to, and --to needs --move: give both")
    if sum(each is not None for each in (target, drained, undrained)) > 1:
        raise InputError("--move, --drain and --undrain cannot be combined: give one at a time")
    replicas = [parse_replica(text) for text in moved]
    addresses, said = resolve_bootstrap(bootstrap, data), None
    if drained is not None or undrained is not None:
        from fairlead_cli.broker import disk_drain

        deadline = time.monotonic() + timeout_s if is_waiting else None
        disks = disk_drain.Disks(addresses, broker_id, deadline)
        if drained is not None:
            said = disk_drain.drain(disks, drained, is_waiting=is_waiting, timeout_s=timeout_s)
        elif undrained is not None:
            said = disk_drain.undrain(disks, undrained)
    at = find_broker(addresses, broker_id)
    if target is not None:
        ask_for_moves(at, broker_id, replicas, target)
        deadline = time.monotonic() + timeout_s
        look = f"fairlead broker disks {broker_id}{cluster_arguments()}"
        with note_if_interrupted(f"What moves goes on. Look:  {look}"):
            while is_waiting and (missing := not_there(describe(at), replicas, target)):
                if time.monotonic() > deadline:
                    late = ", ".join(missing)
                    raise CliError(f"{late} not there after {timeout_s:g} s; it goes on")
                time.sleep(POLL_S)
    rows = directory_rows(describe(at))
    if output == "json":
        print_json(rows)
    else:
        show(rows)
    if said is not None:
        click.echo(said, err=output == "json")


def parse_replica(text: str) -> tuple[str, int]:
    """Return topic and partition of `TOPIC:PARTITION`. InputError."""
    topic, _, digits = text.rpartition(":")
    index = parse_number(digits, INT32_MAX)
    if not topic or index is None:
        raise InputError(f"{text!r} is not TOPIC:PARTITION, such as orders:0")
    return topic, index


def ask_for_moves(
    at: Address, broker_id: int, replicas: list[tuple[str, int]], target: str
) -> None:
    """Ask for all moves; CliError with each refusal."""
    refused = try_moves(at, dict.fromkeys(replicas, target))
    if refused:
        why = "; ".join(f"{topic}:{index}: {code}" for (topic, index), code in refused.items())
        raise CliError(
            why, hint=f"Its folders:  fairlead broker disks {broker_id}{cluster_arguments()}"
        )


def not_there(
    reply: DescribeLogDirsResponse, replicas: list[tuple[str, int]], target: str
) -> list[str]:
    """Return the replicas that still move. CliError if one neither moves nor is in its target."""
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
    """Return one entry for each directory; a failed directory has only its error."""
    from fairlead_cli.wire_exchange import name_error

    rows: list[dict[str, Any]] = []
    for directory in reply.results:
        held = [(topic.name, each) for topic in directory.topics for each in topic.partitions]
        rows.append(
            {
                "path": directory.log_dir,
                "error": name_error(directory.error_code) if directory.error_code else None,
                "cordoned": directory.is_cordoned,
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
    """Print the table and the moves."""
    from fairlead_cli.output import format_bytes, print_table

    print_table(
        ("folder", "state", "replicas", "bytes", "free", "moving here"),
        [
            [
                row["path"],
                row["error"] or ("cordoned" if row["cordoned"] else "in use"),
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
            tell(f"{name} moves to {row['path']}: {each['offsetLag']} offsets are missing.")
