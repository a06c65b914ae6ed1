"""`fairlead group list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import ExitCode
from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.group_listing import GroupListing

STATES = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance"),
    *("Assigning", "Reconciling"),
)
EPILOG = """\b
Examples:
  fairlead group list
  fairlead group list --lag
  fairlead group list --state Empty
  fairlead group list -o json | jq -r '.[] | select(.members == 0) | .group'

Exits with 1 if a broker did not answer, because groups may then be missing.
"""


@click.command("list", epilog=EPILOG)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only groups in this state; may be repeated.",
)
@click.option(
    "--lag", "with_lag", is_flag=True, help="Also show the total lag: reads every offset."
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    states: tuple[str, ...],
    with_lag: bool,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """List consumer groups of both protocols.

    Type `simple`: the group has only offsets and never had members. Type `consumer`: the protocol
    of KIP-848, in which the broker assigns partitions; only it has the states Assigning and
    Reconciling.
    """
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.group_listing import list_groups
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note, print_json

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    found, untold = list_groups(admin)
    listings = [each for each in found if not states or each.state in states]
    documents = build_documents(admin, listings, with_lag=with_lag)
    if output == "json":
        print_json(documents)
    elif documents:
        print_groups(documents, with_lag=with_lag)
    elif not untold:
        note("No consumer group" + (f" is {' or '.join(states)}." if states else "s."))
    for reason in untold:
        note(f"Groups may be missing: {reason}.")
    return ExitCode.FAILED if untold else ExitCode.OK


def print_groups(documents: list[dict[str, Any]], *, with_lag: bool) -> None:
    """Print a row for each group."""
    from fairlead_cli.output import print_table

    columns = ["group", "state", "type", "members"] + (["lag"] if with_lag else [])
    rows = [["-" if each[c] is None else str(each[c]) for c in columns] for each in documents]
    print_table(columns, rows, right=("members", "lag"))


def build_documents(
    admin: AdminClient, listings: list[GroupListing], *, with_lag: bool
) -> list[dict[str, Any]]:
    """Return the JSON output.

    Members are read only for groups that can have members.
    """
    from fairlead_cli.client.groups import describe_groups

    asked = [listing.group for listing in listings if listing.state != "Empty"]
    described = {each.group: each for each in describe_groups(admin, asked)}
    documents = []
    for listing in listings:
        now = described.get(listing.group)
        document: dict[str, Any] = {
            "group": listing.group,
            "state": listing.state if now is None else now.state,
            "type": "simple" if listing.is_simple else listing.kind,
            "protocol": listing.kind,
            "members": 0 if now is None else len(now.members),
        }
        documents.append(document)
    if with_lag:
        lags = read_total_lags(admin, [listing.group for listing in listings])
        for document in documents:
            document["lag"] = lags[document["group"]]
    return documents


def read_total_lags(admin: AdminClient, groups: list[str]) -> dict[str, int | None]:
    """Return the total lag by group. A partition of several groups is read only once."""
    from fairlead_cli.client.groups import read_committed_of
    from fairlead_cli.group.lag import build_lags, total_lag
    from fairlead_cli.group.observation import observe_partitions

    committed = read_committed_of(admin, groups)
    leaders, ends = observe_partitions(admin, {at for each in committed.values() for at in each})
    return {
        group: total_lag(build_lags(offsets, (), ends, leaders))
        for group, offsets in committed.items()
    }
