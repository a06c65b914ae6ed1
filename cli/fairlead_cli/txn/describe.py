"""`fairlead txn describe`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.options import bootstrap_option, data_option, require_name, table_or_json
from fairlead_cli.output import tell
from fairlead_cli.txn.completion import complete_transactional_ids

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.client.transactions import TransactionDescription

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
EPILOG = """\b
Examples:
  fairlead txn describe billing-7
  fairlead txn describe billing-7 -o json | jq '.[0].partitions'

The partitions are those that have no marker yet: their readers wait for the end.
"""


@click.command("describe", epilog=EPILOG)
@click.argument(
    "ids",
    nargs=-1,
    required=True,
    callback=require_name,
    metavar="TRANSACTIONAL_ID...",
    shell_complete=complete_transactional_ids,
)
@data_option
@bootstrap_option
@table_or_json
def command(*, ids: tuple[str, ...], data: Path, bootstrap: str | None, output: str) -> int:
    """Show state, producer, age and partitions of transactional ids."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.client.transactions import describe_transaction
    from fairlead_cli.output import print_json
    from fairlead_cli.several_names import find_each, report_missing

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    found, errors = find_each(ids, lambda each: describe_transaction(admin, each))
    now_ms = int(time.time() * 1000)
    if output == "json":
        print_json([build_document(each, now_ms) for each in found])
    else:
        for each in found:
            print_description(each, now_ms)
    return report_missing(errors)


def build_document(found: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """Return the JSON output."""
    partitions: dict[str, list[int]] = {}
    for place in found.places:
        partitions.setdefault(place.topic, []).append(place.partition)
    return {
        "transactionalId": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "timeoutMs": found.timeout_ms,
        "openForMs": age_ms(found, now_ms),
        "partitions": partitions,
    }


def print_description(found: TransactionDescription, now_ms: int) -> None:
    """Print a line for each fact."""
    from fairlead_cli.client.places import format_places
    from fairlead_cli.txn.durations import format_duration

    age = age_ms(found, now_ms)
    open_for = "-" if age is None else format_duration(age)
    tell(f"{found.transactional_id}: {found.state}, coordinated by broker", nl=False)
    tell(f" {found.coordinator}")
    tell(f"  producer    {found.producer_id}, epoch {found.producer_epoch}")
    tell(f"  open for    {open_for} (at most {format_duration(found.timeout_ms)})")
    tell(f"  partitions  {format_places(found.places) or '-'}")


def age_ms(found: TransactionDescription, now_ms: int) -> int | None:
    """Return how long the transaction has been open; None if there is none."""
    return max(0, now_ms - found.start_ms) if found.state in OPEN_STATES else None
