"""The command `fairlead whatif`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import ExitCode
from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.client.cluster_state import ClusterReading
    from fairlead_controller.decisions.state import ControllerState

ADDED_MAX = 1000

EPILOG = """\b
Examples:
  fairlead whatif broker/1
  fairlead whatif broker/1,2                   both at the same time
  fairlead whatif rack/a -o json | jq .withoutLeader
  fairlead whatif --add-brokers 2              what would move to fill them
  fairlead whatif broker/1 --add-brokers 2     the loss, once they are filled
  fairlead whatif broker/1 && fairlead broker restart 1

The command changes nothing. It exits with 0 if the brokers can be removed now: every partition
keeps a leader, its min.insync.replicas and a replica elsewhere, if it has these now. Otherwise 1.
"""


def complete_target(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete kinds, and ids of the local cluster's brokers."""
    kind, separator, name = incomplete.partition("/")
    if not separator:
        return [each for each in ("broker/", "rack/") if each.startswith(kind)]
    if kind != "broker":
        return []
    return [f"broker/{each}" for each in complete_brokers(ctx, parameter, name)]


@click.command("whatif", epilog=EPILOG)
@click.argument(
    "target", metavar="broker/ID[,ID]|rack/NAME", required=False, shell_complete=complete_target
)
@click.option(
    "--add-brokers",
    "added_count",
    metavar="COUNT",
    type=click.IntRange(0, ADDED_MAX),
    default=0,
    help="Forecast with N more brokers, filled by a rebalance.",
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *, target: str | None, added_count: int, data: Path, bootstrap: str | None, output: str
) -> int:
    """Show the effect of losing brokers, and whether it is safe now."""
    from fairlead_cli.client.access import configured_bootstrap
    from fairlead_cli.client.cluster_state import read_cluster
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note, print_json
    from fairlead_cli.whatif.report import print_document, print_growth
    from fairlead_cli.whatif.target import check_form

    if target is not None:
        check_form(target)
    elif not added_count:
        raise click.UsageError("name what is lost, or --add-brokers")
    bootstrap = bootstrap or configured_bootstrap()
    reading = read_cluster(resolve_bootstrap(bootstrap, data))
    document: dict[str, Any] = {}
    notes: list[str] = []
    if added_count:
        state, document["added"], notes = fill_new_brokers(reading, added_count)
        reading = reading._replace(state=state)
    if target is not None:
        loss, untold = foretell_loss(reading, target, data, is_local=bootstrap is None)
        document |= loss
        notes += [f"Groups may be missing: {reason}." for reason in untold]
    if output == "json":
        print_json(document)
    else:
        if added_count:
            print_growth(document["added"])
        if target is not None:
            print_document(document)
    for text in notes:
        note(text)
    return ExitCode.OK if document.get("safe", True) else ExitCode.FAILED


def foretell_loss(
    reading: ClusterReading, target: str, data: Path, *, is_local: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the forecast as JSON, and the brokers that did not list their groups."""
    from fairlead_cli.local.cluster_file import read_cluster_file
    from fairlead_cli.local.layout import Layout
    from fairlead_cli.whatif.group_row import OFFSETS_TOPIC
    from fairlead_cli.whatif.groups import read_groups_behind
    from fairlead_cli.whatif.recovery import forecast_recovery
    from fairlead_cli.whatif.report import build_document
    from fairlead_cli.whatif.target import find_brokers
    from fairlead_controller.decisions.what_if import forecast_loss

    forecast = forecast_loss(reading.state, find_brokers(reading.state, target))
    offsets = reading.state.image.topic(OFFSETS_TOPIC)
    partitions = 0 if offsets is None else len(offsets.partitions)
    groups, untold = read_groups_behind(reading.admin, forecast, partitions)
    local = read_cluster_file(Layout(data).cluster_file) if is_local else None
    recovery = forecast_recovery(local) if reading.is_fairlead else None
    return build_document(forecast) | {"groups": groups, "recovery": recovery}, untold


def fill_new_brokers(
    reading: ClusterReading, count: int
) -> tuple[ControllerState, dict[str, Any], list[str]]:
    """Return the state with more brokers that a plan has filled, the plan as JSON, and notes."""
    from fairlead_cli.rebalance.measured_load import read_disks, read_throttle
    from fairlead_cli.whatif.new_brokers import after_plan, imagine_brokers
    from fairlead_controller.decisions.balance.cluster_facts import build_brokers, build_partitions
    from fairlead_controller.decisions.balance.plan_document import build_plan_summary
    from fairlead_controller.decisions.balance.planner import plan_balance

    disks, notes = read_disks(reading.admin)
    brokers = build_brokers(reading.state, disks)
    added = imagine_brokers(brokers, count)
    partitions = build_partitions(reading.state, reading.waiting, disks, {})
    plan = plan_balance([*brokers, *added], partitions)
    summary = build_plan_summary(plan, read_throttle(reading.admin))
    document = {"brokers": [each.broker_id for each in added]} | summary
    return after_plan(reading.state, added, plan), document, notes
