"""What `group import` and `group export` share: options, a group's move, and the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.group.position_plan import (
    OutOfRange,
    PlannedPosition,
    PositionFacts,
    Step,
    find_refusal,
    plan_positions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.groups import GroupDescription
    from fairlead_cli.client.places import Place
    from fairlead_cli.zookeeper.old_groups import OldGroup
    from fairlead_cli.zookeeper.tree import Skipped

FREE_STATES = ("Empty", "Dead")
SAID_MAX = 5

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class MoveChoices:
    """The choices that the options make."""

    is_dry_run: bool
    out_of_range: OutOfRange
    allow_running: bool


@dataclass(frozen=True, slots=True)
class GroupMove:
    """One group: its state on both sides, and what is done about each of its positions."""

    old: OldGroup
    found: GroupDescription
    lines: tuple[PlannedPosition, ...]
    skipped: tuple[Skipped, ...]
    refusal: str | None

    @property
    def group(self) -> str:
        return self.old.name

    @property
    def moved(self) -> tuple[PlannedPosition, ...]:
        """The lines that change something."""
        return tuple(line for line in self.lines if line.step is Step.MOVE)


def move_options(command: Command) -> Command:
    """Add the options that both verbs share."""
    options = (
        click.option("--dry-run", is_flag=True, help="Only show what would be done."),
        click.option("--execute", is_flag=True, help="Do it. This is the default."),
        click.option(
            "--out-of-range",
            type=click.Choice([each.value for each in OutOfRange]),
            default=OutOfRange.REFUSE.value,
            show_default=True,
            help="What to do with a position outside of the log here: refuse the group, or move "
            "the position to the log's nearer end.",
        ),
        click.option(
            "--allow-running",
            is_flag=True,
            help="Include groups that have members, in the old cluster or here.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_choices(
    *, dry_run: bool, execute: bool, out_of_range: str, allow_running: bool
) -> MoveChoices:
    """Return the choices of the options; UsageError if they contradict each other."""
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute contradict each other: give one of them")
    return MoveChoices(dry_run, OutOfRange(out_of_range), allow_running)


def plan_move(
    old: OldGroup,
    found: GroupDescription,
    facts: Iterable[PositionFacts],
    skipped: Iterable[Skipped],
    choices: MoveChoices,
) -> GroupMove:
    """Decide about one group: it is moved as a whole or not at all. Pure."""
    lines = plan_positions(facts, choices.out_of_range)
    who = None if choices.allow_running else describe_running(old, found)
    if who is not None:
        refusal: str | None = f"{who}. Stop its applications first, or give --allow-running"
    else:
        refusal = find_refusal(lines)
    return GroupMove(old, found, lines, tuple(skipped), refusal)


def describe_running(old: OldGroup, found: GroupDescription) -> str | None:
    """Return who is in the group, in ZooKeeper or here; None if nobody is."""
    if old.is_running:
        who = [str(consumer) for consumer in old.consumers]
        who = who or [f"owner {name}" for name in sorted(set(old.owners.values()))]
        more = f" and {len(who) - SAID_MAX} more" if len(who) > SAID_MAX else ""
        return f"it runs in ZooKeeper: {'; '.join(who[:SAID_MAX])}{more}"
    if found.state not in FREE_STATES:
        from fairlead_cli.output import format_count

        return f"it runs here: {found.state}, {format_count(len(found.members), 'member')}"
    return None


def read_ends(
    admin: AdminClient, places: Sequence[Place]
) -> tuple[dict[str, dict[int, int]], dict[Place, tuple[int, int]]]:
    """Return the leaders by topic, and the ends of each partition that has one."""
    from fairlead_cli.group.observation import observe_partitions

    if not places:
        return {}, {}
    return observe_partitions(admin, places)


def carry_out(
    moves: Sequence[GroupMove], apply: Callable[[GroupMove, Mapping[Place, int]], None]
) -> tuple[set[str], list[CliError]]:
    """Move each group that may be moved; return the names of moved groups, and the errors."""
    done: set[str] = set()
    errors: list[CliError] = []
    for move in moves:
        offsets = {line.facts.place: line.new for line in move.moved if line.new is not None}
        if move.refusal is not None or not offsets:
            continue
        try:
            apply(move, offsets)
        except CliError as error:
            errors.append(error)
        else:
            done.add(move.group)
    return done, errors


def finish_moves(
    moves: Sequence[GroupMove],
    errors: list[CliError],
    apply: Callable[[GroupMove, Mapping[Place, int]], None],
    *,
    is_dry_run: bool,
    output: str,
    names: tuple[str, str],
) -> int:
    """Move the groups unless this is a dry run, print the result; return the exit code.

    `errors` are those of groups that could not be read; `names` are source and target.
    """
    from fairlead_cli.several_names import report_missing

    done: set[str] = set()
    if not is_dry_run:
        done, failures = carry_out(moves, apply)
        errors = errors + failures
    if output == "json":
        print_document(moves, done, names=names)
    else:
        print_moves(moves, done, names=names, is_dry_run=is_dry_run)
    return max(report_missing(errors), exit_code(moves, errors))


def exit_code(moves: Sequence[GroupMove], errors: Sequence[CliError]) -> int:
    """Return 0 only if everything that was asked for is done, or, in a dry run, could be."""
    is_whole = all(
        move.refusal is None and all(each.is_expected for each in move.skipped) for move in moves
    )
    return ExitCode.OK if is_whole and not errors else ExitCode.FAILED


def print_document(moves: Sequence[GroupMove], done: set[str], *, names: tuple[str, str]) -> None:
    """Print the JSON for scripts; `names` are the keys of source and target."""
    from fairlead_cli.output import print_json

    source, target = names
    print_json(
        {
            "groups": [
                {
                    "group": move.group,
                    "executed": move.group in done,
                    "refused": move.refusal,
                    "consumers": [each.consumer_id for each in move.old.consumers],
                    "members": [member.member_id for member in move.found.members],
                    "partitions": [
                        {
                            **line.facts.place._asdict(),
                            source: line.facts.source,
                            target: line.facts.target,
                            "new": line.new,
                            "step": line.step.value,
                            "logStart": None if line.facts.ends is None else line.facts.ends[0],
                            "logEnd": None if line.facts.ends is None else line.facts.ends[1],
                            "lag": line.lag,
                            "owner": move.old.owners.get(line.facts.place),
                            "note": line.note,
                        }
                        for line in move.lines
                    ],
                }
                for move in moves
            ],
            "skipped": [each.as_document() for move in moves for each in move.skipped],
        }
    )


def print_moves(
    moves: Sequence[GroupMove], done: set[str], *, names: tuple[str, str], is_dry_run: bool
) -> None:
    """Print a row for each partition; then, on stderr, what was omitted, refused and done."""
    from fairlead_cli.output import format_count, note, print_table

    numbers = ("partition", *names, "new", "log start", "log end", "lag after")
    rows = []
    for move in moves:
        for line in move.lines:
            facts = line.facts
            ends = (None, None) if facts.ends is None else facts.ends
            cells = [facts.place.partition, facts.source, facts.target, line.new, *ends, line.lag]
            shown = ["-" if cell is None else str(cell) for cell in cells]
            rows.append([move.group, facts.place.topic, *shown, line.note or ""])
    if rows:
        print_table(("group", "topic", *numbers, "note"), rows, right=numbers)
    for move in moves:
        for each in move.skipped:
            note(f"skipped {each}")
    for move in moves:
        if move.refusal is not None:
            verb = "would be" if is_dry_run else "was"
            note(f"Group {move.group} {verb} refused: {move.refusal}.")
    if is_dry_run:
        ready = [move for move in moves if move.refusal is None]
        count = format_count(sum(len(move.moved) for move in ready), "position")
        note(f"Nothing was changed. Without --dry-run, {count} would move.")
        return
    finished = [move for move in moves if move.group in done]
    count = format_count(sum(len(move.moved) for move in finished), "position")
    note(f"Moved {count} of {format_count(len(finished), 'group')}.")
