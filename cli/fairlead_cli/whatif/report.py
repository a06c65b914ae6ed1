"""The output of `whatif`, as JSON and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.output import tell
from fairlead_model.ids import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_controller.decisions.what_if import Forecast, PartitionForecast

SHOWN = 10


def build_document(forecast: Forecast) -> dict[str, Any]:
    """Return the forecast for partitions."""

    def place(each: PartitionForecast) -> dict[str, Any]:
        return {"topic": each.topic, "partition": each.index}

    return {
        "brokers": sorted(forecast.lost),
        "safe": forecast.is_safe,
        "replicas": len(forecast.partitions),
        "leadersMove": [
            place(each) | {"from": each.before.leader, "to": each.after.leader}
            for each in forecast.partitions
            if each.changes_leader and each.after.leader != NO_LEADER
        ],
        "withoutLeader": [place(each) for each in forecast.partitions if each.loses_leader],
        "belowMinimum": [
            place(each) | {"inSync": len(each.after.isr), "minimum": each.after.effective_min_isr}
            for each in forecast.partitions
            if each.falls_below_minimum
        ],
        "lastCopies": [place(each) for each in forecast.partitions if each.loses_last_copy],
        "leadersAfter": {
            str(broker_id): count for broker_id, count in forecast.leaders_after().items()
        },
        "already": {
            "withoutLeader": forecast.already_without_leader,
            "belowMinimum": forecast.already_below_minimum,
        },
    }


def print_document(document: dict[str, Any]) -> None:
    """Print the verdict first, then its reasons, the worst first."""
    from fairlead_cli.output import format_count, print_table

    names = ", ".join(map(str, document["brokers"]))
    brokers = f"broker{'' if len(document['brokers']) == 1 else 's'} {names}"
    if document["safe"]:
        tell(click.style(f"SAFE: {brokers} can be taken away now.", fg="green"))
    else:
        tell(click.style(f"NOT SAFE: {brokers} should stay.", fg="red", bold=True))
    moved: dict[int, int] = {}
    for each in document["leadersMove"]:
        moved[each["to"]] = moved.get(each["to"], 0) + 1
    to = ", ".join(f"{count} to broker {broker}" for broker, count in sorted(moved.items()))
    tell(
        f"{format_count(document['replicas'], 'replica')} there; "
        f"{format_count(len(document['leadersMove']), 'leader')} would move"
        + (f": {to}." if to else ".")
    )
    for key, what in (
        ("lastCopies", "would lose the last copy of acknowledged records"),
        ("withoutLeader", "would have no leader"),
        ("belowMinimum", "would refuse acks=all: fewer in sync than min.insync.replicas"),
    ):
        if document[key]:
            places = [f"{each['topic']}-{each['partition']}" for each in document[key]]
            count = format_count(len(places), "partition")
            tell(f"{count} {what}: {listed(places)}")
    already = document["already"]
    if already["withoutLeader"] or already["belowMinimum"]:
        tell(
            f"Already now, and not counted: {already['withoutLeader']} without a leader, "
            f"{already['belowMinimum']} below min.insync.replicas."
        )
    if document.get("groups"):
        print_table(
            ("group", "state", "partitions", "no leader", "coordinator"),
            [
                (
                    each["group"],
                    each["state"],
                    str(each["partitions"]),
                    str(each["withoutLeader"]),
                    coordinator_text(each["coordinator"]),
                )
                for each in document["groups"]
            ],
            right=("partitions", "no leader"),
        )
    if document.get("readers"):
        print_table(
            ("kind", "name", "group", "partitions", "no leader", "coordinator"),
            [
                (
                    each["kind"],
                    each["name"],
                    each["group"],
                    str(each["partitions"]),
                    str(each["withoutLeader"]),
                    coordinator_text(each["coordinator"]),
                )
                for each in document["readers"]
            ],
            right=("partitions", "no leader"),
        )
    if document.get("recovery"):
        tell(recovery_text(document["recovery"]))


def print_growth(added: dict[str, Any]) -> None:
    """Print what more brokers would take over."""
    from fairlead_cli.rebalance.report import print_amounts, print_tables

    names = ", ".join(map(str, added["brokers"]))
    tell(f"With broker{'' if len(added['brokers']) == 1 else 's'} {names} besides:")
    print_tables(added)
    print_amounts(added)


def coordinator_text(coordinator: dict[str, Any] | None) -> str:
    """Return which broker becomes a group's coordinator."""
    if coordinator is None:
        return "stays"
    return "none" if coordinator["to"] is None else f"moves to broker {coordinator['to']}"


def recovery_text(recovery: dict[str, Any]) -> str:
    """Return how long the recovery takes, and the source of that value."""
    text = (
        f"Led again within {recovery['crashMs']} ms of a crash, {recovery['silenceMs'] / 1000:g} s "
        f"of silence ({recovery['source']})."
    )
    own = recovery["ownElections"]
    if own is None:
        return text
    return (
        f"{text} Of this controller's {own['count']} elections half took up to {own['p50Ms']} ms, "
        f"99 % up to {own['p99Ms']} ms."
    )


def listed(places: Sequence[str]) -> str:
    """Return the first places, and the number of the others."""
    more = len(places) - SHOWN
    return ", ".join(places[:SHOWN]) + (f" and {more} more" if more > 0 else "")
