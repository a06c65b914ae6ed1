"""`fairlead topic reassign`: move replicas to other brokers."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.name_completion import complete_brokers, complete_topics
from fairlead_cli.options import FiniteRange, bootstrap_option, data_option, table_or_json
from fairlead_cli.topic.assignment import Assigner, Place, TooFewBrokersError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.reassignment import Refusal

TIMEOUT_S: Final = 3600.0
POLL_S: Final = 0.5
# The error for a cancellation without a reassignment: the partition is already as requested.
NOT_NEEDED: Final = "NO_REASSIGNMENT_IN_PROGRESS"

EPILOG = """\b
Examples:
  fairlead topic reassign orders                           show what moves now
  fairlead topic reassign orders --to 1 --to 2 --to 4      place it on these brokers only
  fairlead topic reassign orders --to 4 --to 2 --to 1 --partition 0 --wait
  fairlead topic reassign orders --cancel                  keep the old replicas

Replicas that are on these brokers stay. Records are copied, few partitions at a time; an old
replica is removed once the new one is in sync. Exits with 1 if a partition is refused, or if --wait
ends before everything has moved.
"""


@click.command("reassign", epilog=EPILOG)
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option(
    "--to",
    "brokers",
    multiple=True,
    metavar="ID",
    type=click.IntRange(min=0),
    shell_complete=complete_brokers,
    help="A broker that may hold replicas; may be repeated.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; may be repeated.",
)
@click.option("--cancel", "is_cancelling", is_flag=True, help="Cancel what moves.")
@click.option("--wait", "is_waiting", is_flag=True, help="Return when nothing moves any more.")
@click.option(
    "--timeout-s",
    type=FiniteRange(min=0.1),
    default=TIMEOUT_S,
    show_default=True,
    help="How long --wait waits.",
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    name: str,
    brokers: tuple[int, ...],
    partitions: tuple[int, ...],
    is_cancelling: bool,
    is_waiting: bool,
    timeout_s: float,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """Move replicas of a topic to other brokers, or show what moves."""
    from fairlead_cli.client.connection import build_admin, require_topic
    from fairlead_cli.client.reassignment import alter_reassignments, read_targets
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import format_count, note, note_if_interrupted, print_json

    if brokers and is_cancelling:
        raise click.UsageError("give either --to or --cancel, not both")
    addresses = resolve_bootstrap(bootstrap, data)
    admin = build_admin(addresses)
    known = require_topic(admin, name).partitions
    chosen = sorted(set(partitions)) or sorted(known)
    if missing := [str(index) for index in chosen if index not in known]:
        raise CliError(
            f"topic '{name}' has no partition {', '.join(missing)}",
            hint=f"It has {len(known)}:  fairlead topic describe {name}{cluster_arguments()}",
        )
    refused: dict[int, Refusal] = {}
    wanted: dict[int, list[int]] = {}
    if is_cancelling:
        refused = alter_reassignments(addresses, name, dict.fromkeys(chosen))
    elif brokers or is_waiting:
        wanted = read_targets(addresses, name, {each: known[each].replicas for each in chosen})
    if brokers:
        wanted = plan_move(admin, wanted, brokers)
        refused = alter_reassignments(addresses, name, wanted)
    rows = read_rows(admin, addresses, name, chosen, refused)
    if is_waiting:
        with note_if_interrupted(advise_moving(name)):
            rows = wait_until_placed(
                rows,
                wanted,
                lambda: read_rows(admin, addresses, name, chosen, refused),
                timeout_s,
            )
    if output == "json":
        print_json(rows)
    else:
        print_rows(rows)
    is_refused = any(row["error"] not in (None, NOT_NEEDED) for row in rows)
    is_late = is_waiting and any(map(is_moving, rows))
    if is_late:
        moving = format_count(sum(map(is_moving, rows)), "partition")
        note(f"{moving} not there after {timeout_s:g} s. {advise_moving(name)}")
    return ExitCode.FAILED if is_refused or is_late else ExitCode.OK


def wait_until_placed(
    rows: list[dict[str, Any]],
    wanted: Mapping[int, Sequence[int]],
    read: Callable[[], list[dict[str, Any]]],
    timeout_s: float,
) -> list[dict[str, Any]]:
    """Read the rows again until nothing moves, or the time is up; return the last ones.

    The controller reports the moves, and a broker, which learns of them later, the replicas. So
    rows with other replicas than those that are wanted are read until they are the same twice.
    """
    deadline = time.monotonic() + timeout_s
    before: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        is_sure = rows == before or all(
            row["replicas"] == list(wanted.get(row["partition"], ())) for row in rows
        )
        if is_sure and not any(map(is_moving, rows)):
            break
        time.sleep(POLL_S)
        before, rows = rows, read()
    return rows


def advise_moving(name: str) -> str:
    """Return what to do about moves that continue without the command."""
    command = f"fairlead topic reassign {shlex.quote(name)}"
    return (
        f"What moves goes on. Look:  {command}{cluster_arguments()}\n"
        f"Call it back:  {command} --cancel{cluster_arguments()}"
    )


def plan_move(
    admin: AdminClient, before: Mapping[int, Sequence[int]], brokers: Sequence[int]
) -> dict[int, list[int]]:
    """Return the partitions' replicas on these brokers only. CliError if there are too few."""
    assigner = build_assigner(admin)
    unknown = [str(each) for each in brokers if each not in assigner.places]
    if unknown:
        raise CliError(
            f"there is no broker {', '.join(unknown)} in service",
            hint=f"Look:  fairlead status{cluster_arguments()}",
        )
    assigner.places = {each: assigner.places[each] for each in brokers}
    try:
        return {index: assigner.moved(replicas) for index, replicas in before.items()}
    except TooFewBrokersError:
        factor = max(map(len, before.values()))
        raise CliError(
            f"{factor} replicas need as many brokers; --to names {len(assigner.places)}"
        ) from None


def build_assigner(admin: AdminClient) -> Assigner:
    """Read the brokers in service, their places, and the number of replicas on each."""
    from fairlead_cli.client.connection import describe_cluster, fetch_metadata

    cluster = describe_cluster(admin)
    places = {node.id: Place(node.id, node.host, node.rack) for node in cluster.nodes}
    topics: Any = fetch_metadata(admin).topics
    held = Counter(
        replica
        for topic in topics.values()
        for partition in topic.partitions.values()
        for replica in partition.replicas
    )
    return Assigner(dict(sorted(places.items())), held)


def leave_out_drained(admin: AdminClient, assigner: Assigner) -> None:
    """Remove brokers that are being drained from the plan: they may get no new replicas."""
    from fairlead_cli.client.broker_configs import read_orders_of
    from fairlead_cli.client.survey import find_brokers

    for broker_id, orders in read_orders_of(find_brokers(admin)).items():
        if orders.drained:
            assigner.places.pop(broker_id, None)


def read_rows(
    admin: AdminClient,
    addresses: str,
    name: str,
    chosen: Sequence[int],
    refused: Mapping[int, Refusal],
) -> list[dict[str, Any]]:
    """Return a row for each partition: its replicas, and those added and removed."""
    from fairlead_cli.client.connection import require_topic
    from fairlead_cli.client.reassignment import list_reassignments

    ongoing = list_reassignments(addresses, name, chosen)
    partitions = require_topic(admin, name).partitions
    rows: list[dict[str, Any]] = []
    for index in chosen:
        moving, refusal = ongoing.get(index), refused.get(index)
        rows.append(
            {
                "topic": name,
                "partition": index,
                "replicas": moving.replicas if moving else list(partitions[index].replicas),
                "adding": moving.adding if moving else [],
                "removing": moving.removing if moving else [],
                "error": refusal.error if refusal else None,
                "message": refusal.message if refusal else None,
            }
        )
    return rows


def is_moving(row: Mapping[str, Any]) -> bool:
    """Tell whether replicas are added or removed."""
    return bool(row["adding"] or row["removing"])


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    from fairlead_cli.output import print_table

    def listed(brokers: Sequence[int]) -> str:
        return ", ".join(map(str, brokers)) or "-"

    def outcome(row: dict[str, Any]) -> str:
        if row["error"] not in (None, NOT_NEEDED):
            return str(row["message"])
        return "moves" if is_moving(row) else "in place"

    print_table(
        ("partition", "replicas", "adding", "removing", "outcome"),
        [
            (
                str(row["partition"]),
                *(listed(row[column]) for column in ("replicas", "adding", "removing")),
                outcome(row),
            )
            for row in rows
        ],
        title=rows[0]["topic"] if rows else None,
        right=("partition",),
    )
