"""`fairlead txn list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import ExitCode
from fairlead_cli.options import INT64_MAX, bootstrap_option, data_option, table_or_json
from fairlead_cli.txn.durations import Duration

if TYPE_CHECKING:
    from pathlib import Path

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
EPILOG = """\b
Examples:
  fairlead txn list
  fairlead txn list --state Ongoing --longer-than 1m
  fairlead txn list --producer-id 4000
  fairlead txn list --id-pattern 'billing-.*' -o json

Exits with 1 if a broker did not answer, because ids may then be missing.
"""


def check_pattern(
    _ctx: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    """Refuse patterns that every broker refuses: their answer has no field for the reason."""
    if value is not None:
        from fairlead_broker.limits import (
            TRANSACTION_PATTERN_BYTES_MAX,
            TRANSACTION_PATTERN_LENGTH_MAX,
        )
        from fairlead_broker.patterns import compile_pattern
        from fairlead_wire.errors import KafkaError

        try:
            compile_pattern(
                value,
                length_max=TRANSACTION_PATTERN_LENGTH_MAX,
                bytes_max=TRANSACTION_PATTERN_BYTES_MAX,
            )
        except KafkaError as error:
            raise click.BadParameter(error.message) from error
    return value


@click.command("list", epilog=EPILOG)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only ids in this state; may be repeated.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=click.IntRange(0, INT64_MAX),
    help="Only the id that has this producer id; may be repeated.",
)
@click.option(
    "--longer-than",
    "longer_than_ms",
    type=Duration(),
    help="Only transactions that have been open for longer, as 30s or 15m.",
)
@click.option(
    "--id-pattern",
    "pattern",
    metavar="REGEX",
    callback=check_pattern,
    help="Only ids that match this expression as a whole (RE2).",
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    pattern: str | None,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """List transactional ids, their states and their coordinators."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.client.transactions import TransactionFilter, list_transactions
    from fairlead_cli.output import note, print_json, print_table

    wanted = TransactionFilter(states, producer_ids, longer_than_ms, pattern)
    listings, untold = list_transactions(build_admin(resolve_bootstrap(bootstrap, data)), wanted)
    if output == "json":
        print_json(
            [
                {
                    "transactionalId": each.transactional_id,
                    "state": each.state,
                    "producerId": each.producer_id,
                    "coordinator": each.coordinator,
                }
                for each in listings
            ]
        )
    elif listings:
        print_table(
            ["transactional id", "state", "producer id", "coordinator"],
            [
                [each.transactional_id, each.state, str(each.producer_id), str(each.coordinator)]
                for each in listings
            ],
            right=("producer id", "coordinator"),
        )
    elif not untold:
        note("No transactional id" + (" is like that." if any(wanted) else "s."))
    for reason in untold:
        note(f"Transactional ids may be missing: {reason}.")
    return ExitCode.FAILED if untold else ExitCode.OK
