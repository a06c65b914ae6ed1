"""`fairlead group reset`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError
from fairlead_cli.group.reset_target import (
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    describe_target,
    parse_datetime,
    parse_duration,
)
from fairlead_cli.name_completion import complete_groups, complete_topics
from fairlead_cli.options import bootstrap_option, data_option, require_name, table_or_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.groups import GroupDescription
    from fairlead_cli.client.places import Place
    from fairlead_cli.group.reset_plan import PartitionFacts, PlannedOffset
    from fairlead_cli.group.selection import TopicSelection

# Group states without members, so that offsets can be set; `Dead` means there is no group yet.
FREE_STATES = ("Empty", "Dead")
EPILOG = """\b
Examples:
  fairlead group reset billing --topic orders --to-earliest
  fairlead group reset billing --topic orders --to-datetime 2026-03-01T03:00 --execute
  fairlead group reset billing --topic orders:0,2 --shift-by -100 --execute
  fairlead group reset billing --all-topics --by-duration 2h --execute
  fairlead group reset new-group --topic orders --to-latest --execute

Without --execute the command only shows the plan. The group must have no members: stop its
applications first. An offset outside the log moves to the log's nearer end. A group that does not
exist is created.
"""


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the seven options for the target."""
    options = (
        click.option("--to-earliest", is_flag=True, help="To the oldest record."),
        click.option("--to-latest", is_flag=True, help="To the log end: skip all present records."),
        click.option(
            "--to-datetime",
            metavar="ISO",
            help=(
                "To the first record of that time or later: 2026-03-01T03:00, local time "
                "unless it has a zone."
            ),
        ),
        click.option("--to-offset", type=click.IntRange(min=0), help="To this offset."),
        click.option(
            "--shift-by", type=int, metavar="N", help="N records forward; negative: back."
        ),
        click.option(
            "--to-current", is_flag=True, help="To the present offset, moved into the log."
        ),
        click.option(
            "--by-duration", metavar="AGE", help="To the time so long ago: 15m, 2h, P1DT2H."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("reset", epilog=EPILOG)
@click.argument("group", callback=require_name, shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:P[,P]]",
    shell_complete=complete_topics,
    help="This topic, or some of its partitions; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All topics for which the group has offsets.")
@target_options
@click.option("--dry-run", is_flag=True, help="Only show the plan. This is the default.")
@click.option("--execute", is_flag=True, help="Do it.")
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    data: Path,
    bootstrap: str | None,
    output: str,
    **target_values: Any,
) -> None:
    """Move the committed offsets of GROUP. Shows the plan; --execute does it."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.groups import build_members_error, describe_group
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.group.reset_plan import plan_reset
    from fairlead_cli.group.selection import parse_selections

    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute contradict each other: give one of them")
    if all_topics == bool(topics):
        raise click.UsageError("name topics with --topic T, or give --all-topics")
    target = choose_target(target_values, now_ms=time.time_ns() // 1_000_000)
    selections = parse_selections(topics)
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    found = describe_group(admin, group)
    if execute and found.state not in FREE_STATES:
        raise build_members_error("nothing was changed", found)
    plan = plan_reset(target, read_facts(admin, group, selections, target))
    if execute:
        apply_plan(admin, group, plan)
    if output == "json":
        print_document(group, plan, is_executed=execute)
    else:
        print_plan(found, plan, target, is_executed=execute)


def choose_target(values: dict[str, Any], *, now_ms: int) -> Target:
    """Return the target of exactly one option; otherwise UsageError lists them."""
    given = [name for name, value in values.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in values)
        raise click.UsageError(f"say where to with exactly one of {names}")
    (name,) = given
    value = values[name]
    try:
        match name:
            case "to_earliest":
                return ToEarliest()
            case "to_latest":
                return ToLatest()
            case "to_current":
                return ToCurrent()
            case "to_offset":
                return ToOffset(value)
            case "shift_by":
                return ShiftBy(value)
            case "to_datetime":
                return parse_datetime(value)
            case _:
                return parse_duration(value, now_ms=now_ms)
    except ValueError as error:
        hint = f"--{name.replace('_', '-')}"
        raise click.BadParameter(str(error), param_hint=hint) from error


def read_facts(
    admin: AdminClient, group: str, selections: list[TopicSelection], target: Target
) -> list[PartitionFacts]:
    """Return the facts for the plan; without selections, for all committed offsets of the group."""
    from fairlead_cli.client.groups import read_committed
    from fairlead_cli.client.leaders import read_leaders
    from fairlead_cli.client.offsets import find_times_of, read_ends_of
    from fairlead_cli.client.places import Place
    from fairlead_cli.group.reset_plan import PartitionFacts

    committed = read_committed(admin, group)
    if not selections:
        places = choose_committed_places(admin, group, list(committed))
    else:
        leaders = read_leaders(admin, (selection.topic for selection in selections))
        places = choose_places(admin, selections, leaders)
    ends = read_ends_of(admin, places)
    times: dict[tuple[str, int], int] = {}
    if isinstance(target, ToTime):
        times = find_times_of(admin, places, target.timestamp_ms)
    facts = []
    for place in places:
        old, at_time = committed.get(place), times.get(place, -1)
        start, end = ends[place]
        facts.append(
            PartitionFacts(
                Place(*place),
                None if old is None else old.offset,
                start,
                end,
                at_time if at_time >= 0 else None,
            )
        )
    return facts


def choose_places(
    admin: AdminClient, selections: list[TopicSelection], leaders: dict[str, dict[int, int]]
) -> list[Place]:
    """Return the partitions of the options, all of which must exist and have a leader."""
    from fairlead_cli.client.connection import build_unknown_topic_error, fetch_metadata
    from fairlead_cli.client.places import Place
    from fairlead_cli.group.selection import expand_selection

    places = []
    for selection in selections:
        if selection.topic not in leaders:
            known = list(fetch_metadata(admin).topics)
            raise build_unknown_topic_error(selection.topic, known)
        places += [Place(*at) for at in expand_selection(selection, leaders[selection.topic])]
    return places


def choose_committed_places(admin: AdminClient, group: str, committed: list[Place]) -> list[Place]:
    """Return all committed partitions (--all-topics); those of deleted topics are reported."""
    from fairlead_cli.client.leaders import read_leaders
    from fairlead_cli.group.selection import TopicSelection
    from fairlead_cli.output import note

    if not committed:
        raise CliError(
            f"group '{group}' has no committed offsets",
            hint="Name topics to give it some:  --topic T",
        )
    leaders = read_leaders(admin, (place.topic for place in committed))
    present = [at for at in committed if at.partition in leaders.get(at.topic, {})]
    for place in committed:
        if place not in present:
            note(f"{place} does not exist any more: left alone.")
    topics: dict[str, list[int]] = {}
    for place in present:
        topics.setdefault(place.topic, []).append(place.partition)
    selections = [TopicSelection(topic, tuple(ids)) for topic, ids in topics.items()]
    return choose_places(admin, selections, leaders)


def apply_plan(admin: AdminClient, group: str, plan: list[PlannedOffset]) -> None:
    """Write the new offsets in one request; CliError if any was refused."""
    from fairlead_cli.client.connection import build_error
    from fairlead_cli.client.groups import build_members_error, describe_group, write_committed

    offsets = {line.facts.place: line.new for line in plan if line.new is not None}
    if not offsets:
        raise CliError(f"nothing was changed: no offset of group '{group}' can be moved like that")
    refused = write_committed(admin, group, offsets)
    if not refused:
        return
    found = describe_group(admin, group)
    if found.members:
        raise build_members_error("offsets were not changed, somebody joined meanwhile", found)
    place, error = next(iter(refused.items()))
    count = f"{len(refused)} of {len(offsets)} offsets"
    raise build_error(f"{count} of group '{group}' were not changed, {place}", error)


def print_document(group: str, plan: list[PlannedOffset], *, is_executed: bool) -> None:
    """Print the JSON for scripts."""
    from fairlead_cli.output import print_json

    partitions = [
        {
            **line.facts.place._asdict(),
            "old": line.facts.committed,
            "new": line.new,
            "logStart": line.facts.log_start,
            "logEnd": line.facts.log_end,
            "lag": line.lag,
            "note": line.note,
        }
        for line in plan
    ]
    print_json({"group": group, "executed": is_executed, "partitions": partitions})


def print_plan(
    group: GroupDescription, plan: list[PlannedOffset], target: Target, *, is_executed: bool
) -> None:
    """Print old and new offsets, then what was done or how to do it."""
    from fairlead_cli.output import format_count, note, print_table

    numbers = ("partition", "old", "new", "change", "log start", "log end", "lag after")
    has_notes = any(line.note for line in plan)
    rows = []
    for line in plan:
        facts = line.facts
        is_known = line.new is not None and facts.committed is not None
        difference = (line.new or 0) - (facts.committed or 0)
        change = "-" if not is_known else f"{difference:+d}" if difference else "0"
        cells: list[object] = [facts.place.topic, facts.place.partition, facts.committed]
        cells += [line.new, change, facts.log_start, facts.log_end, line.lag]
        shown = ["-" if cell is None else str(cell) for cell in cells]
        rows.append([*shown, line.note or ""] if has_notes else shown)
    print_table(("topic", *numbers, *(("note",) if has_notes else ())), rows, right=numbers)
    changed = format_count(sum(line.is_change for line in plan), "offset")
    where = describe_target(target)
    if is_executed:
        note(f"Moved {changed} of group {group.group} {where}.")
        return
    if not any(line.is_change for line in plan):
        note("Nothing was changed: there is nothing to move.")
        return
    note(f"Nothing was changed. Add --execute to move {changed} of {group.group} {where}.")
    if group.state not in FREE_STATES:
        note(
            f"It would be refused now: the group is {group.state} with "
            f"{format_count(len(group.members), 'member')}. Stop its applications first."
        )
