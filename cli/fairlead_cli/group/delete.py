"""`fairlead group delete`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError
from fairlead_cli.name_completion import complete_groups, complete_topics
from fairlead_cli.options import bootstrap_option, data_option, require_name
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.group.selection import TopicSelection

EPILOG = """\b
Examples:
  fairlead group delete billing
  fairlead group delete billing audit --if-exists
  fairlead group delete billing --topic orders
  fairlead group delete billing --topic orders:3,4

A group that has members is not deleted. With --topic only the group's offsets of that topic are
deleted, and the group stays; members may read other topics meanwhile.
"""


@click.command("delete", epilog=EPILOG)
@click.argument(
    "groups",
    nargs=-1,
    required=True,
    callback=require_name,
    metavar="GROUP...",
    shell_complete=complete_groups,
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:P[,P]]",
    shell_complete=complete_topics,
    help="Only the offsets of this topic, or of some of its partitions; may be repeated.",
)
@click.option("--if-exists", is_flag=True, help="Do not fail if the group does not exist.")
@data_option
@bootstrap_option
def command(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    if_exists: bool,
    data: Path,
    bootstrap: str | None,
) -> int:
    """Delete groups with all of their offsets, or only their offsets of a topic."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.group.selection import parse_selections
    from fairlead_cli.several_names import find_each, report_missing

    selections = parse_selections(topics)
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    if not selections:
        return delete_whole(admin, list(dict.fromkeys(groups)), if_exists=if_exists)
    _, errors = find_each(
        groups, lambda group: delete_offsets_of(admin, group, selections, if_exists=if_exists)
    )
    return report_missing(errors)


def delete_whole(admin: AdminClient, groups: list[str], *, if_exists: bool) -> int:
    """Delete every group that can be deleted, report each refusal; return the exit code."""
    from fairlead_cli.client.connection import build_error
    from fairlead_cli.client.groups import (
        MISSING_GROUP_NAMES,
        build_members_error,
        build_unknown_group_error,
        delete_groups,
        describe_group,
    )
    from fairlead_cli.several_names import report_missing

    errors: list[CliError] = []
    for group, error in delete_groups(admin, groups).items():
        if error is None:
            tell(f"Deleted group {group}.")
        elif error.name() in MISSING_GROUP_NAMES:
            if not if_exists:
                errors.append(build_unknown_group_error(admin, group))
        elif error.name() == "NON_EMPTY_GROUP":
            errors.append(build_members_error("not deleted", describe_group(admin, group)))
        else:
            errors.append(build_error(f"cannot delete group '{group}'", error, name=group))
    return report_missing(errors)


def delete_offsets_of(
    admin: AdminClient, group: str, selections: list[TopicSelection], *, if_exists: bool
) -> None:
    """Delete the offsets of these selections; CliError if there are none."""
    from fairlead_cli.client.groups import (
        build_unknown_group_error,
        describe_group,
        read_committed,
    )
    from fairlead_cli.group.offset_deletion import delete_offsets
    from fairlead_cli.output import format_count

    found = describe_group(admin, group)
    if not found.exists:
        if if_exists:
            return
        raise build_unknown_group_error(admin, group)
    committed = read_committed(admin, group)
    wanted = {selection.topic: selection.partitions for selection in selections}
    places = [
        place
        for place in committed
        if place.topic in wanted
        and (wanted[place.topic] is None or place.partition in (wanted[place.topic] or ()))
    ]
    if not places:
        names = ", ".join(wanted)
        if if_exists:
            return
        raise CliError(
            f"group '{group}' has no committed offsets there ({names})",
            hint=f"See what it has:  fairlead group describe {shlex.quote(group)}"
            f"{cluster_arguments()}",
        )
    delete_offsets(found, places)
    tell(f"Deleted {format_count(len(places), 'offset')} of group {group}.")
