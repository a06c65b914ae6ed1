"""`fairlead txn abort`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.name_completion import complete_topics
from fairlead_cli.options import bootstrap_option, data_option, require_name
from fairlead_cli.output import tell
from fairlead_cli.txn.completion import complete_transactional_ids

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

EPILOG = """\b
Examples:
  fairlead txn abort billing-7
  fairlead txn abort --topic orders:3 --start-offset 1200

With an id the coordinator aborts its open transaction and fences the producer: the application has
to create a new producer. With a partition and a start offset, as `txn find-hanging` prints them,
the partition's leader ends a transaction that no coordinator knows. Never do this to a transaction
whose producer still runs.
"""


@click.command("abort", epilog=EPILOG)
@click.argument(
    "ids",
    nargs=-1,
    callback=require_name,
    metavar="[TRANSACTIONAL_ID...]",
    shell_complete=complete_transactional_ids,
)
@click.option(
    "--topic",
    metavar="T:P",
    shell_complete=complete_topics,
    help="The partition of a hanging transaction.",
)
@click.option("--start-offset", type=click.IntRange(min=0), help="Offset at which it began there.")
@data_option
@bootstrap_option
def command(
    *,
    ids: tuple[str, ...],
    topic: str | None,
    start_offset: int | None,
    data: Path,
    bootstrap: str | None,
) -> int:
    """Abort the open transaction of an id, or a hanging one of a partition."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap

    if bool(ids) == (topic is not None) or (topic is None) != (start_offset is None):
        raise click.UsageError("name transactional ids, or --topic T:P with --start-offset")
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    if topic is not None and start_offset is not None:
        abort_by_place(admin, topic, start_offset)
        return ExitCode.OK
    return abort_by_id(admin, ids)


def abort_by_id(admin: AdminClient, ids: tuple[str, ...]) -> int:
    """Abort the open transaction of each id; an unknown id is not created."""
    from fairlead_cli.client.transactions import describe_transaction, fence
    from fairlead_cli.several_names import find_each, report_missing

    def abort(transactional_id: str) -> None:
        before = describe_transaction(admin, transactional_id)
        fence(admin, transactional_id)
        done = "Aborted the transaction of" if before.places else "Nothing was open; fenced"
        tell(f"{done} {transactional_id}.")

    _, errors = find_each(ids, abort)
    return report_missing(errors)


def abort_by_place(admin: AdminClient, topic: str, start_offset: int) -> None:
    """End the transaction that began at an offset of a partition; CliError if none is open."""
    from fairlead_cli.client.transactions import abort_hanging, find_open_transactions
    from fairlead_cli.txn.hanging import select_places

    places = select_places(admin, (topic,))
    if len(places) != 1:
        raise click.UsageError(f"--topic '{topic}' is {len(places)} partitions: name one, as T:P")
    opened, untold = find_open_transactions(admin, places)
    for each in opened:
        if each.start_offset == start_offset:
            abort_hanging(admin, each)
            tell(f"Aborted the transaction at offset {start_offset} of {each.place}.")
            return
    raise CliError(
        f"no open transaction began at offset {start_offset} of {places[0]}",
        hint="\n".join(
            [
                *untold,
                f"See what hangs:  fairlead txn find-hanging --topic {topic}{cluster_arguments()}",
            ]
        ),
    )
