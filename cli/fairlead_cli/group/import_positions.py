"""`fairlead group import`."""

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
from fairlead_cli.options import bootstrap_option, data_option, require_name, table_or_json
from fairlead_cli.zookeeper.address import zookeeper_option

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.places import Place
    from fairlead_cli.zookeeper.old_groups import OldGroup
    from fairlead_cli.zookeeper.tree import Skipped
    from fairlead_zookeeper.address import ZooKeeperAccess

NAMES = ("zookeeper", "committed")
EPILOG = """\b
Examples:
  fairlead group import --zookeeper zk1:2181,zk2:2181/kafka --dry-run
  fairlead group import --zookeeper zk1:2181/kafka billing audit
  fairlead group import --zookeeper zk1:2181/kafka billing --out-of-range clamp

A position is right here only if the records have the same offsets as in the old cluster. A
position never goes back: a larger committed offset here is kept. The command names each znode that
it leaves out on stderr. It moves a group as a whole or not at all.
"""


@click.command("import", epilog=EPILOG)
@click.argument("groups", nargs=-1, callback=require_name, metavar="[GROUP]...")
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
    """Commit positions of old consumers in ZooKeeper (/consumers); all groups, or these."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap

    choices = read_choices(**options)
    old, old_topics, errors = read_old_groups(ensemble, groups)
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    moves = plan_moves(admin, old, old_topics, choices)
    return finish_moves(
        moves,
        errors,
        lambda move, to: commit(admin, move.group, to),
        is_dry_run=choices.is_dry_run,
        output=output,
        names=NAMES,
    )


def read_old_groups(
    ensemble: ZooKeeperAccess, names: tuple[str, ...]
) -> tuple[list[OldGroup], frozenset[str], list[CliError]]:
    """Return the groups in the tree, the names of its topics, and an error per unknown name."""
    from fairlead_cli.several_names import find_each
    from fairlead_cli.zookeeper.old_groups import CONSUMERS, group_path, read_group
    from fairlead_cli.zookeeper.session import open_session
    from fairlead_cli.zookeeper.tree import children_of
    from fairlead_zookeeper.znodes import BROKER_TOPICS

    with open_session(ensemble) as session:
        session.require_kafka(CONSUMERS)
        known = children_of(session.read(CONSUMERS, depth=0), CONSUMERS)
        topics = children_of(session.read(BROKER_TOPICS, depth=0), BROKER_TOPICS)

        def find(name: str) -> OldGroup:
            if name not in known:
                raise build_no_group_error(ensemble, name, known)
            return read_group(session.read(group_path(name), depth=3), name)

        found, errors = find_each(names or known, find)
    return found, frozenset(topics), errors


def build_no_group_error(ensemble: ZooKeeperAccess, name: str, known: tuple[str, ...]) -> CliError:
    """Return an error that names the most similar group in the tree."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    hint = f"Did you mean '{close[0]}'?" if close else f"It has {len(known)} groups."
    return CliError(f"there is no group '{name}' at {ensemble.connect_string}", hint=hint)


def plan_moves(
    admin: AdminClient,
    groups: list[OldGroup],
    old_topics: frozenset[str],
    choices: MoveChoices,
) -> list[GroupMove]:
    """Read the same groups and their partitions in this cluster, and decide."""
    from fairlead_cli.client.groups import describe_groups, read_committed_of

    names = [group.name for group in groups]
    described = describe_groups(admin, names)
    committed = read_committed_of(admin, names)
    places = sorted({place for group in groups for place in group.positions})
    leaders, ends = read_ends(admin, places)
    moves = []
    for group, found in zip(groups, described, strict=True):
        facts: list[PositionFacts] = []
        skipped = list(group.skipped)
        for place, position in group.positions.items():
            if place.partition not in leaders.get(place.topic, {}):
                skipped.append(explain_missing(group.name, place, leaders, old_topics))
                continue
            here = committed[group.name].get(place)
            target = None if here is None else here.offset
            facts.append(PositionFacts(place, position, target, ends.get(place)))
        moves.append(plan_move(group, found, facts, skipped, choices))
    return moves


def explain_missing(
    group: str,
    place: Place,
    leaders: Mapping[str, Mapping[int, int]],
    old_topics: frozenset[str],
) -> Skipped:
    """Return why this cluster has no such partition; deleted topics leave positions behind."""
    from fairlead_cli.zookeeper.old_groups import position_path
    from fairlead_cli.zookeeper.tree import Skipped

    path = position_path(group, place)
    if place.topic in leaders:
        count = len(leaders[place.topic])
        return Skipped(path, f"topic {place.topic} has {count} partitions here")
    if place.topic in old_topics:
        return Skipped(path, f"topic {place.topic} is not here: `fairlead topic import` first")
    return Skipped(path, f"topic {place.topic} is neither there nor here", is_expected=True)


def commit(admin: AdminClient, group: str, offsets: Mapping[Place, int]) -> None:
    """Commit in one request; CliError if any offset was refused."""
    from fairlead_cli.client.connection import build_error
    from fairlead_cli.client.groups import build_members_error, describe_group, write_committed

    refused = write_committed(admin, group, dict(offsets))
    if not refused:
        return
    found = describe_group(admin, group)
    if found.members:
        raise build_members_error("positions were not taken, and cannot be while it runs", found)
    place, error = next(iter(refused.items()))
    count = f"{len(refused)} of {len(offsets)} positions"
    raise build_error(f"{count} of group '{group}' were not taken, {place}", error)
