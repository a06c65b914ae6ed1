"""`fairlead group export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError
from fairlead_cli.group.position_moves import (
    GroupMove,
    MoveChoices,
    finish_moves,
    move_options,
    plan_move,
    read_choices,
    read_ends,
)
from fairlead_cli.group.position_plan import PositionFacts
from fairlead_cli.name_completion import complete_groups
from fairlead_cli.options import bootstrap_option, data_option, require_name, table_or_json
from fairlead_cli.zookeeper.address import zookeeper_option

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.groups import Committed, GroupDescription
    from fairlead_cli.client.places import Place
    from fairlead_cli.zookeeper.old_groups import OldGroup
    from fairlead_cli.zookeeper.session import Session
    from fairlead_cli.zookeeper.tree import Skipped
    from fairlead_zookeeper.address import ZooKeeperAccess

NAMES = ("committed", "zookeeper")
EPILOG = """\b
Examples:
  fairlead group export --zookeeper zk1:2181,zk2:2181/kafka billing --dry-run
  fairlead group export --zookeeper zk1:2181/kafka billing audit
  fairlead group export --zookeeper zk1:2181/kafka

Use it for applications that return to old consumers, which keep their positions in ZooKeeper. The
command compares positions with the logs of this cluster, so the old cluster must have the same
records at the same offsets. A position never goes back: a larger one in ZooKeeper is kept.
"""


@click.command("export", epilog=EPILOG)
@click.argument(
    "groups",
    nargs=-1,
    callback=require_name,
    metavar="[GROUP]...",
    shell_complete=complete_groups,
)
@zookeeper_option
@move_options
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    groups: tuple[str, ...],
    ensemble: ZooKeeperAccess,
    data: Path,
    bootstrap: str | None,
    output: str,
    **options: Any,
) -> int:
    """Write committed offsets of all groups, or these, to ZooKeeper for old consumers."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.zookeeper.old_groups import CONSUMERS
    from fairlead_cli.zookeeper.session import open_session
    from fairlead_zookeeper.znodes import BROKER_TOPICS

    choices = read_choices(**options)
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    described, errors = find_groups(admin, groups)
    with open_session(ensemble) as session:
        session.require_kafka(CONSUMERS, BROKER_TOPICS)
        moves = plan_moves(admin, session, described, choices)
        return finish_moves(
            moves,
            errors,
            lambda move, to: write(session, move.old, to),
            is_dry_run=choices.is_dry_run,
            output=output,
            names=NAMES,
        )


def find_groups(
    admin: AdminClient, names: tuple[str, ...]
) -> tuple[list[GroupDescription], list[CliError]]:
    """Return the named groups, or all; and an error for each group that does not exist."""
    from fairlead_cli.client.group_listing import list_groups
    from fairlead_cli.client.groups import describe_groups, require_group
    from fairlead_cli.several_names import find_each

    if names:
        return find_each(names, lambda name: require_group(admin, name))
    listings, untold = list_groups(admin)
    described = describe_groups(admin, [listing.group for listing in listings])
    return described, [CliError(f"some groups are not known: {why}") for why in untold]


def plan_moves(
    admin: AdminClient,
    session: Session,
    described: list[GroupDescription],
    choices: MoveChoices,
) -> list[GroupMove]:
    """Read the groups' znodes and partitions, and decide."""
    from fairlead_cli.client.groups import read_committed_of
    from fairlead_cli.zookeeper.old_groups import group_path, read_group
    from fairlead_cli.zookeeper.old_topics import read_partition_counts
    from fairlead_zookeeper.znodes import BROKER_TOPICS

    counts = read_partition_counts(session.read(BROKER_TOPICS, depth=1))
    committed = read_committed_of(admin, [found.group for found in described])
    places = sorted({place for offsets in committed.values() for place in offsets})
    _, ends = read_ends(admin, places)
    moves = []
    for found in described:
        name = found.group
        tree = session.read(group_path(name), depth=3) if is_znode_name(name) else {}
        old = read_group(tree, name)
        facts, skipped = find_facts(old, committed[name], ends, counts)
        moves.append(plan_move(old, found, facts, skipped, choices))
    return moves


def find_facts(
    old: OldGroup,
    committed: Mapping[Place, Committed],
    ends: Mapping[Place, tuple[int, int]],
    partition_counts: Mapping[str, int],
) -> tuple[list[PositionFacts], list[Skipped]]:
    """Return the facts for a group's plan, and what cannot go to the old cluster. Pure."""
    from fairlead_cli.zookeeper.old_groups import group_path, position_path
    from fairlead_cli.zookeeper.tree import Skipped

    if not is_znode_name(old.name):
        return [], [Skipped(group_path(old.name), "no znode can have this name")]
    facts: list[PositionFacts] = []
    # It is normal that a group has no positions there yet.
    skipped = [each for each in old.skipped if not each.is_expected]
    for place, at in committed.items():
        if place.partition >= partition_counts.get(place.topic, 0):
            path = position_path(old.name, place)
            skipped.append(Skipped(path, f"the old cluster has no partition {place}"))
        elif place in old.versions and place not in old.positions:
            continue  # It is damaged, and listed: a person has to look at it first.
        else:
            there = old.positions.get(place)
            facts.append(PositionFacts(place, at.offset, there, ends.get(place)))
    return facts, skipped


def is_znode_name(group: str) -> bool:
    """Tell whether a group's name can be one element of a path."""
    return "/" not in group and group not in {".", ".."} and group.isprintable()


def write(session: Session, old: OldGroup, offsets: Mapping[Place, int]) -> None:
    """Set the positions, each only if its znode has not changed since it was read."""
    from fairlead_cli.zookeeper.old_groups import position_path
    from fairlead_cli.zookeeper.session import Write

    session.write(
        [
            Write(position_path(old.name, place), str(offset).encode(), old.versions.get(place))
            for place, offset in offsets.items()
        ]
    )
