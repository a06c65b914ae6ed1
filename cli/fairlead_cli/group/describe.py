"""`fairlead group describe`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.name_completion import complete_groups
from fairlead_cli.options import bootstrap_option, data_option, require_name, table_or_json
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.client.consumer_groups import MemberProgress
    from fairlead_cli.client.groups import GroupDescription, Member
    from fairlead_cli.group.lag import PartitionLag

# Member ids end in a UUID; eight of its digits are enough to distinguish members of one client.
UUID_TAIL = re.compile(r"(?<=[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")

EPILOG = """\b
Examples:
  fairlead group describe billing
  fairlead group describe billing --members
  fairlead group describe billing audit --state
  fairlead group describe billing -o json | jq '.[0].offsets[] | select(.lag > 1000)'

The lag of a partition is its log end offset minus the committed offset. In a partition without a
committed offset the application begins as its auto.offset.reset says.
"""


@click.command("describe", epilog=EPILOG)
@click.argument(
    "groups",
    nargs=-1,
    required=True,
    callback=require_name,
    metavar="GROUP...",
    shell_complete=complete_groups,
)
@click.option("--state", "only_state", is_flag=True, help="Only the state and the total lag.")
@click.option("--members", "only_members", is_flag=True, help="Only members, with their full ids.")
@click.option("--offsets", "only_offsets", is_flag=True, help="Only offsets and lag.")
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    groups: tuple[str, ...],
    only_state: bool,
    only_members: bool,
    only_offsets: bool,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """Show state, coordinator, members, committed offsets and lag of groups."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.group.observation import observe_group
    from fairlead_cli.output import print_json
    from fairlead_cli.several_names import find_each, report_missing

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    observed, errors = find_each(groups, lambda group: observe_group(admin, group))
    if output == "json":
        print_json([build_document(group, lags) for group, lags in observed])
        return report_missing(errors)
    is_everything = not (only_state or only_members or only_offsets)
    for group, lags in observed:
        print_state(group, lags)
        if only_offsets or is_everything:
            print_offsets(group, lags)
        if only_members or is_everything:
            print_members(group, is_full=only_members)
    return report_missing(errors)


def build_document(group: GroupDescription, lags: list[PartitionLag]) -> dict[str, Any]:
    """Return the JSON for scripts: every field is always there, null if it is not known."""
    from fairlead_cli.group.lag import total_lag

    node = group.coordinator
    return {
        "group": group.group,
        "state": group.state,
        "type": "simple" if group.is_simple else group.kind,
        "protocol": group.kind,
        "assignor": group.assignor or None,
        "groupEpoch": None if group.progress is None else group.progress.group_epoch,
        "assignmentEpoch": None if group.progress is None else group.progress.assignment_epoch,
        "coordinator": None
        if node is None
        else dict(zip(("id", "host", "port"), node, strict=True)),
        "lag": total_lag(lags),
        "members": [
            {
                "memberId": member.member_id,
                "instanceId": member.instance_id,
                "clientId": member.client_id,
                "host": member.host,
                "partitions": [place._asdict() for place in member.partitions],
                **build_progress_document(member.progress),
            }
            for member in group.members
        ],
        "offsets": [build_offset_document(lag) for lag in lags],
    }


def build_progress_document(progress: MemberProgress | None) -> dict[str, Any]:
    """Return the fields that only members of `consumer` groups have."""
    if progress is None:
        names = ("protocol", "epoch", "subscribedTopics", "subscribedPattern", "target")
        return dict.fromkeys(names)
    return {
        "protocol": progress.protocol,
        "epoch": progress.epoch,
        "subscribedTopics": list(progress.subscribed_topics),
        "subscribedPattern": progress.subscribed_pattern,
        "target": [place._asdict() for place in progress.target],
    }


def build_offset_document(lag: PartitionLag) -> dict[str, Any]:
    """Return one partition of the JSON output."""
    committed, member = lag.committed, lag.member
    return {
        **lag.place._asdict(),
        "committed": None if committed is None else committed.offset,
        "leaderEpoch": None if committed is None else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "logStart": lag.log_start,
        "logEnd": lag.log_end,
        "lag": lag.lag,
        "memberId": None if member is None else member.member_id,
        "problem": lag.problem,
    }


def print_state(group: GroupDescription, lags: list[PartitionLag]) -> None:
    """Print the state: whether the group has members, and its lag."""
    from fairlead_cli.group.lag import total_lag
    from fairlead_cli.output import escape_controls, format_count

    node = group.coordinator
    lag = total_lag(lags)
    behind = sum(1 for each in lags if each.lag)
    problems = sum(1 for each in lags if each.problem is not None)
    tell(click.style(f"Group {group.group}", bold=True))
    kind = "simple" if group.is_simple else group.kind
    how = escape_controls(", ".join(filter(None, (kind, group.assignor))))
    tell(f"  state        {group.state} ({how})")
    if group.progress is not None:
        made_for = group.progress.assignment_epoch
        tell(f"  epoch        {group.progress.group_epoch}, assigned for {made_for}")
    place = "unknown" if node is None else f"broker {node[0]} at {node[1]}:{node[2]}"
    tell(f"  coordinator  {place}")
    tell(f"  members      {len(group.members)}")
    shown = "-" if lag is None else format_count(lag, "record")
    if behind:
        shown += f", {behind} of {format_count(len(lags), 'partition')} behind"
    tell(f"  lag          {shown}")
    if problems:
        tell(f"  problems     {format_count(problems, 'partition')}, see below")


def print_offsets(group: GroupDescription, lags: list[PartitionLag]) -> None:
    """Print a row for each partition; omit columns without any value."""
    from fairlead_cli.output import print_table

    if not lags:
        tell("No committed offsets.")
        return
    has_metadata = any(lag.committed is not None and lag.committed.metadata for lag in lags)
    has_problems = any(lag.problem is not None for lag in lags)
    numbers = ("partition", "committed", "epoch", "log end", "lag")
    columns = ["topic", *numbers]
    columns += ["member"] if group.members else []
    columns += ["metadata"] if has_metadata else []
    columns += ["problem"] if has_problems else []
    rows = []
    for lag in lags:
        committed = lag.committed
        cells = {
            "topic": lag.place.topic,
            "partition": lag.place.partition,
            "committed": None if committed is None else committed.offset,
            "epoch": None if committed is None else committed.leader_epoch,
            "log end": lag.log_end,
            "lag": lag.lag,
            "member": None if lag.member is None else short_name(lag.member),
            "metadata": None if committed is None else committed.metadata or None,
            "problem": lag.problem or "",
        }
        rows.append(["-" if cells[c] is None else str(cells[c]) for c in columns])
    print_table(columns, rows, right=numbers)


def print_members(group: GroupDescription, *, is_full: bool) -> None:
    """Print a row for each member."""
    from fairlead_cli.client.places import format_places
    from fairlead_cli.output import print_table

    if not group.members:
        if is_full:
            tell("No members.")
        return
    has_instances = any(member.instance_id is not None for member in group.members)
    columns = ["member", *(["instance"] if has_instances and is_full else [])]
    columns += ["client", "host"]
    is_consumer = any(member.progress is not None for member in group.members)
    columns += ["epoch"] if is_consumer else []
    columns += ["count", "partitions"]
    is_moving = any(is_on_its_way(member) for member in group.members)
    columns += ["target"] if is_moving else []
    rows = []
    for member in group.members:
        cells = {
            "member": member.member_id if is_full else short_name(member),
            "instance": member.instance_id or "-",
            "client": member.client_id,
            "host": member.host,
            "count": str(len(member.partitions)),
            "partitions": format_places(member.partitions) or "none: idle",
            "epoch": "-" if member.progress is None else str(member.progress.epoch),
            "target": format_places(member.progress.target) or "none"
            if member.progress is not None and is_on_its_way(member)
            else "-",
        }
        rows.append([cells[column] for column in columns])
    print_table(columns, rows, right=("count", "epoch"))


def is_on_its_way(member: Member) -> bool:
    """Tell whether a member's target assignment differs from its present one."""
    return member.progress is not None and member.progress.target != member.partitions


def short_name(member: Member) -> str:
    """Return a static member's own name, else enough of its id to distinguish it."""
    return member.instance_id or UUID_TAIL.sub("…", member.member_id)
