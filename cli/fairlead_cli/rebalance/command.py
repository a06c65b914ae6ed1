"""The command `fairlead rebalance`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.options import FiniteRange, bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fairlead_cli.client.reassignment import Refusal
    from fairlead_controller.decisions.balance.cluster_facts import Traffic

TIMEOUT_S: Final = 3600.0

EPILOG = """\b
Examples:
  fairlead rebalance                             the plan; nothing moves
  fairlead rebalance -o json > plan.json
  fairlead rebalance --execute 3f0c1a2b4d5e --wait
  fairlead rebalance --status 3f0c1a2b4d5e
  fairlead rebalance --cancel 3f0c1a2b4d5e       back to where it was, if it has not moved

Goals, the most important first: racks, disks, replicas, leaders, bytes in, bytes out. A plan is
carried out as it was shown or not at all: it is refused if brokers, replicas or leader epochs have
changed since. Exits with 1 if the plan or a partition is refused, or if --wait ends before
everything has moved.
"""


def complete_plan(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the ids of stored plans."""
    from fairlead_cli.rebalance.plan_shelf import shelf

    return sorted(each.stem for each in shelf().glob(f"{incomplete}*.json"))


@click.command("rebalance", epilog=EPILOG)
@click.option(
    "--execute",
    metavar="PLAN",
    shell_complete=complete_plan,
    help="Carry out a plan that was shown.",
)
@click.option("--status", metavar="PLAN", shell_complete=complete_plan, help="Show the progress.")
@click.option("--cancel", metavar="PLAN", shell_complete=complete_plan, help="Cancel what moves.")
@click.option(
    "--wait", "is_waiting", is_flag=True, help="Return when nothing of the plan moves any more."
)
@click.option(
    "--timeout-s",
    type=FiniteRange(min=0.1),
    default=TIMEOUT_S,
    show_default=True,
    help="How long --wait waits.",
)
@data_option
@bootstrap_option
@table_or_json
def command(
    *,
    execute: str | None,
    status: str | None,
    cancel: str | None,
    is_waiting: bool,
    timeout_s: float,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """Plan how to balance the brokers; carry a plan out only when asked."""
    from fairlead_cli.client.access import configured_bootstrap
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import format_count, note, note_if_interrupted, print_json
    from fairlead_cli.rebalance import progress
    from fairlead_cli.rebalance.plan_shelf import find_plan, keep_plan
    from fairlead_cli.rebalance.report import print_plan, print_progress

    chosen = [each for each in (execute, status, cancel) if each is not None]
    if len(chosen) > 1:
        raise click.UsageError("give only one of --execute, --status and --cancel")
    if is_waiting and not chosen:
        raise click.UsageError("--wait is for --execute, --status or --cancel")
    document = find_plan(chosen[0]) if chosen else None
    bootstrap = bootstrap or configured_bootstrap()
    addresses = resolve_bootstrap(bootstrap, data)
    if document is None:
        document = make_plan(addresses, data, is_local=bootstrap is None)
        try:
            keep_plan(document)
        except CliError as error:
            note(f"{error.message}: carry it out from a file (-o json > plan.json).")
        if output == "json":
            print_json(document)
        else:
            print_plan(document)
        return ExitCode.OK
    refused: dict[tuple[str, int], Refusal] = {}
    if execute is not None:
        progress.require_unchanged(document, addresses)
        refused = progress.start(document, addresses)
    elif cancel is not None:
        refused = progress.cancel(document, addresses)
    look = f"fairlead rebalance --status {document['id']}{cluster_arguments()}"
    with note_if_interrupted(f"What moves goes on. Look:  {look}"):
        told = progress.wait(document, addresses, timeout_s if is_waiting else 0.0)
    is_elected = execute is not None and is_waiting
    if is_elected and (late := progress.elect_preferred(document, addresses)):
        note(f"{late} preferred leaders cannot lead yet; the controller tries again by itself.")
    told["refused"] = list_refusals(refused)
    if output == "json":
        print_json(told)
    else:
        print_progress(told)
    is_late = is_waiting and told["moving"]
    if is_late:
        moving = format_count(told["moving"], "partition")
        note(f"{moving} not there after {timeout_s:g} s. What moves goes on. Look:  {look}")
    return ExitCode.FAILED if refused or is_late else ExitCode.OK


def list_refusals(refused: Mapping[tuple[str, int], Refusal]) -> list[dict[str, Any]]:
    """Return refusals as JSON."""
    return [
        {"topic": topic, "partition": index, "error": each.error, "message": each.message}
        for (topic, index), each in sorted(refused.items())
    ]


def make_plan(addresses: str, data: Path, *, is_local: bool) -> dict[str, Any]:
    """Measure, plan, and return the plan as JSON; change nothing."""
    from fairlead_cli.client.cluster_state import read_cluster
    from fairlead_cli.local.cluster_file import read_cluster_file
    from fairlead_cli.local.layout import Layout
    from fairlead_cli.rebalance.measured_load import measure_traffic, read_disks, read_throttle
    from fairlead_controller.decisions.balance.cluster_facts import build_brokers, build_partitions
    from fairlead_controller.decisions.balance.plan_document import build_plan_document
    from fairlead_controller.decisions.balance.planner import plan_balance

    reading = read_cluster(addresses)
    disks, notes = read_disks(reading.admin)
    cluster = read_cluster_file(Layout(data).cluster_file) if is_local else None
    traffic: dict[tuple[int, str], Traffic] = {}
    if cluster is None:
        notes.append(
            "Bytes in and out are not known here, and count as 0: they are read from the "
            "metrics of a local cluster."
        )
    else:
        traffic, untold = measure_traffic(cluster)
        notes += untold
    brokers = build_brokers(reading.state, disks)
    partitions = build_partitions(reading.state, reading.waiting, disks, traffic)
    if fixed := sum(each.is_fixed for each in partitions):
        notes.append(f"{fixed} partitions stay where they are: they move, or miss replicas.")
    plan = plan_balance(brokers, partitions)
    rate = read_throttle(reading.admin)
    document = build_plan_document(reading.cluster_id, reading.state, plan, rate)
    return document | {"notes": notes}
