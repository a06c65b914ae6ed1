"""The output of `rebalance` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN = 10
BYTES_OF_GOALS = ("disks", "bytes in", "bytes out")


def print_plan(document: Mapping[str, Any]) -> None:
    """Print the improvement, the moves, their duration, and how to go on."""
    from fairlead_cli.output import format_bytes, note

    if not document["moves"]:
        tell("Nothing to move: the brokers are as even as they can be made.")
    print_tables(document)
    for what in document["notes"]:
        note(what)
    if not document["moves"]:
        return
    moves = document["moves"]
    for move in moves[:SHOWN]:
        before, after = (", ".join(map(str, move[when])) for when in ("before", "after"))
        size = format_bytes(move["bytes"])
        tell(f"  {move['topic']}-{move['partition']}: {before} -> {after}, {size}")
    if len(moves) > SHOWN:
        tell(f"  and {len(moves) - SHOWN} more (-o json has all)")
    print_amounts(document)
    tell(
        f"Nothing has moved yet. Carry out plan {document['id']}:\n"
        f"  fairlead rebalance --execute {document['id']}{cluster_arguments()}"
    )


def print_tables(document: Mapping[str, Any]) -> None:
    """Print the distance from each goal, and the load of each broker, before and after."""
    from fairlead_cli.output import format_bytes, print_table

    goals = [
        (each["goal"], *(amount(each["goal"], each[when]) for when in ("before", "after")))
        for each in document["goals"]
    ]
    print_table(("goal, missed by", "before", "after"), goals, right=("before", "after"))
    columns = ("replicas", "leaders", "bytes", "bytesIn", "bytesOut")
    print_table(
        ("broker", "replicas", "leaders", "on disk", "in/s", "out/s"),
        [
            (
                str(share["broker"]),
                *(
                    change(share[name], format_bytes if name.startswith("bytes") else str)
                    for name in columns
                ),
            )
            for share in document["shares"]
        ],
        right=("broker", "replicas", "leaders", "on disk", "in/s", "out/s"),
    )


def print_amounts(document: Mapping[str, Any]) -> None:
    """Print how much data moves and how long that takes."""
    from fairlead_cli.output import format_bytes, format_count

    duration = "" if document["durationS"] is None else f", {duration_text(document['durationS'])}"
    tell(
        f"{format_count(document['partitionsMoved'], 'partition')} would move, "
        f"{format_count(document['leadersOrdered'], 'preferred leader')} would change: "
        f"{format_bytes(document['bytes'])} to copy "
        f"({format_bytes(document['bytesNeeded'])} is the least for any such plan){duration}."
    )


def duration_text(duration_s: float) -> str:
    """Return the least duration in words."""
    return "less than a second" if duration_s < 1 else f"at least {duration_s:,.0f} s"


def amount(goal: str, value: float) -> str:
    """Return a distance in its unit."""
    from fairlead_cli.output import format_bytes

    return format_bytes(round(value)) if goal in BYTES_OF_GOALS else f"{value:g}"


def change(pair: list[int], shown: Any) -> str:
    """Return `before -> after`, or one value if it stays."""
    before, after = shown(pair[0]), shown(pair[1])
    return str(before) if before == after else f"{before} -> {after}"


def print_progress(progress: Mapping[str, Any]) -> None:
    """Print the progress of a plan."""
    from fairlead_cli.output import format_bytes

    tell(
        f"Plan {progress['id']}: {progress['done']} of {progress['partitions']} partitions done "
        f"({format_bytes(progress['bytesDone'])} of {format_bytes(progress['bytes'])}), "
        f"{progress['moving']} moving or waiting, {progress['notMoved']} not moved, "
        f"{progress['changedSince']} changed since."
    )
    for refusal in progress["refused"]:
        tell(f"  {refusal['topic']}-{refusal['partition']}: {refusal['message']}")
