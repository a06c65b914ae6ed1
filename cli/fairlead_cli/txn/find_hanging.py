"""`fairlead txn find-hanging`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import ExitCode
from fairlead_cli.name_completion import complete_topics
from fairlead_cli.options import bootstrap_option, data_option, table_or_json
from fairlead_cli.txn.durations import Duration

if TYPE_CHECKING:
    from pathlib import Path

# Default of Kafka's transaction.max.timeout.ms: a transaction with a coordinator is not older.
MAX_TRANSACTION_TIMEOUT_MS = 15 * 60_000
EPILOG = """\b
Examples:
  fairlead txn find-hanging
  fairlead txn find-hanging --topic orders --topic payments:0,1
  fairlead txn find-hanging --longer-than 1h -o json

A transaction hangs if it is open in a partition and no coordinator knows it: no coordinator will
ever end it, and readers with read_committed and compaction stop there. End it with the command
`txn abort` that is printed. Exits with 1 if there is one, or if a broker did not answer.
"""


@click.command("find-hanging", epilog=EPILOG)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:P[,P]]",
    shell_complete=complete_topics,
    help="Look at this topic, or some of its partitions; may be repeated.  [default: all topics]",
)
@click.option(
    "--longer-than",
    "longer_than_ms",
    type=Duration(),
    default=MAX_TRANSACTION_TIMEOUT_MS,
    help="Only transactions without a record for this time; at least "
    "transaction.max.timeout.ms.  [default: 15m]",
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    topics: tuple[str, ...],
    longer_than_ms: int,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """Find open transactions of partitions that no coordinator will ever end."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note, print_json, print_table
    from fairlead_cli.txn.durations import format_duration
    from fairlead_cli.txn.hanging import abort_command, find_hanging, select_places

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    now_ms = int(time.time() * 1000)
    hanging, untold = find_hanging(
        admin, select_places(admin, topics), now_ms=now_ms, longer_than_ms=longer_than_ms
    )
    if output == "json":
        print_json(
            [
                {
                    "topic": each.place.topic,
                    "partition": each.place.partition,
                    "producerId": each.producer_id,
                    "producerEpoch": each.producer_epoch,
                    "coordinatorEpoch": each.coordinator_epoch,
                    "startOffset": each.start_offset,
                    "silentForMs": now_ms - each.last_ms,
                }
                for each in hanging
            ]
        )
    elif hanging:
        print_table(
            ["partition", "producer id", "epoch", "start offset", "silent for"],
            [
                [
                    str(each.place),
                    str(each.producer_id),
                    str(each.producer_epoch),
                    str(each.start_offset),
                    format_duration(now_ms - each.last_ms),
                ]
                for each in hanging
            ],
            right=("producer id", "epoch", "start offset"),
        )
        note("Nobody will end these. To end them, so that their records are never read:")
        for each in hanging:
            note(f"  {abort_command(each)}")
    elif not untold:
        note("No transaction hangs.")
    for reason in untold:
        note(f"Transactions may be missing: {reason}.")
    return ExitCode.FAILED if hanging or untold else ExitCode.OK
