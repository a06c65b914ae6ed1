"""`fairlead topic elect`: leader elections on request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.name_completion import complete_topics
from fairlead_cli.options import bootstrap_option, data_option, table_or_json
from fairlead_cli.topic.create import VISIBLE_POLL_S, VISIBLE_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

# The error for an election that changes nothing: the partition is already as requested.
NOT_NEEDED = "ELECTION_NOT_NEEDED"

EPILOG = """\b
Examples:
  fairlead topic elect orders                            all partitions
  fairlead topic elect orders --partition 0 --partition 3
  fairlead topic elect orders --partition 0 --unclean    accept that records are lost

Exits with 1 if a partition could not get the requested leader.
"""


@click.command("elect", epilog=EPILOG)
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; may be repeated.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="For partitions without a leader: elect any live replica, even if it lacks records.",
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    name: str,
    partitions: tuple[int, ...],
    unclean: bool,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """Make the preferred replica (the first of each partition) leader again.

    After a broker was away, other brokers lead its partitions until the controller balances them.
    This command does it now. The preferred replica must be in sync.
    """
    from fairlead_cli.client.connection import build_admin, require_topic
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import print_json

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    known = sorted(require_topic(admin, name).partitions)
    chosen = sorted(set(partitions)) or known
    missing = [str(partition) for partition in chosen if partition not in known]
    if missing:
        raise CliError(
            f"topic '{name}' has no partition {', '.join(missing)}",
            hint=f"It has {len(known)}:  fairlead topic describe {name}{cluster_arguments()}",
        )
    rows = elect(admin, name, chosen, is_unclean=unclean)
    if output == "json":
        print_json(rows)
    else:
        print_outcomes(rows)
    is_done = all(row["error"] in (None, NOT_NEEDED) for row in rows)
    return ExitCode.OK if is_done else ExitCode.FAILED


def elect(
    admin: AdminClient, topic: str, partitions: list[int], *, is_unclean: bool
) -> list[dict[str, Any]]:
    """Send one request; return a row for each partition, with the leader it has now."""
    from confluent_kafka import ElectionType, TopicPartition

    from fairlead_cli.client.connection import wait_for

    kind = ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED
    asked = [TopicPartition(topic, partition) for partition in partitions]
    # Without options: confluent-kafka 2.16 fails with every documented option.
    future = admin.elect_leaders(kind, asked)
    errors = wait_for(future, f"cannot elect leaders of topic '{topic}'")
    elected = {at.partition for at in asked if errors.get(at) is None}
    leaders = read_leaders(admin, topic, elected, is_unclean=is_unclean)
    rows: list[dict[str, Any]] = []
    for at in asked:
        error = errors.get(at)
        leader = leaders.get(at.partition, -1)
        rows.append(
            {
                "topic": topic,
                "partition": at.partition,
                "leader": leader if leader >= 0 else None,
                "error": None if error is None else str(error.name()),
                "message": None if error is None else str(error.str()),
            }
        )
    return rows


def read_leaders(
    admin: AdminClient, topic: str, elected: set[int], *, is_unclean: bool
) -> dict[int, int]:
    """Return the leader of each partition, once the broker knows the results of the elections."""
    from fairlead_cli.client.connection import require_topic

    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    while True:
        partitions = list(require_topic(admin, topic).partitions.values())
        waiting = [
            each
            for each in partitions
            if each.id in elected
            and (each.leader < 0 if is_unclean else each.leader != each.replicas[0])
        ]
        if not waiting or time.monotonic() > deadline:
            return {each.id: each.leader for each in partitions}
        time.sleep(VISIBLE_POLL_S)


def print_outcomes(rows: list[dict[str, Any]]) -> None:
    """Print the outcomes as a table."""
    from fairlead_cli.output import print_table

    def outcome(row: dict[str, Any]) -> str:
        if row["error"] is None:
            return "elected"
        return "as it should be" if row["error"] == NOT_NEEDED else str(row["message"])

    print_table(
        ("partition", "leader", "outcome"),
        [
            (
                str(row["partition"]),
                "none" if row["leader"] is None else str(row["leader"]),
                outcome(row),
            )
            for row in rows
        ],
        title=rows[0]["topic"] if rows else None,
        right=("partition", "leader"),
    )
