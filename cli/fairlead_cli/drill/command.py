"""`fairlead drill`: cause a fault under a verified workload, and report its effect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead_cli.drill.faults import FaultKind
from fairlead_cli.drill.stalls import Stalls
from fairlead_cli.drill.targets import FORMS, TargetKind, parse_target
from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.options import FiniteRange, data_option, require_place, table_or_json

if TYPE_CHECKING:
    from typing import Any

    from fairlead_cli.drill.run import Drill, DrillOutcome, DrillPlan
    from fairlead_model.resources.failover_drill import FailoverDrillSpec

EPILOG = """\b
Examples:
  fairlead drill --target leader:orders/0 --fault kill
  fairlead drill --target broker:1 --fault pause --hold-s 10 --runs 5
  fairlead drill --target controller --fault kill -o json
  fairlead drill --target leader:orders/0 --target controller --fault kill
  fairlead drill --target follower:orders/0 --fault slow --stall-ms 200 --runs 1
  fairlead drill --target broker:1,2 --fault kill --allow-unsafe
  fairlead drill --target all --fault roll --runs 1
  fairlead drill -f drill.yaml
  fairlead up --fault-proxy --detach && fairlead drill --target broker:0 --fault isolate

The drill writes to its own topic. At its end, also after Ctrl-C, it undoes the fault. It exits
with 1 if a record was lost, duplicated or reordered, if the application saw an error, or if a
limit was exceeded. The limits up to the first new acknowledgement, at the 99th percentile, are
250 ms after kill, 2 s after pause, isolate and disk-full, and 4.5 s if the controller is hit, too.
No producer may wait longer than 100 ms after a clean stop, 250 ms during roll and 2 s with a slow
broker. A manifest has its own limits.
"""


async def run_until_signalled(drill: Drill) -> DrillOutcome:
    """Run a drill; SIGTERM and SIGHUP end it as Ctrl-C does: the fault is undone first.

    A second signal, as from a terminal that closes, does not interrupt that. A signal that this
    process was started to ignore (`nohup`) is ignored.
    """
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    running = asyncio.create_task(drill.run())

    def stop() -> None:
        if not running.cancelling():
            running.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
    try:
        return await running
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise click.Abort from None


@click.command("drill", epilog=EPILOG)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A FailoverDrill manifest, as for Kubernetes; instead of the options below.",
)
@click.option("--target", "targets", multiple=True, help=f"{FORMS}; several fail at once.")
@click.option("--fault", type=click.Choice([kind.value for kind in FaultKind]))
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--rate",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Records a second, beside the probes.",
)
@click.option(
    "--record-size",
    type=click.IntRange(32, 1_000_000),
    default=256,
    show_default=True,
    help="Bytes in each record.",
)
@click.option(
    "--hold-s",
    type=FiniteRange(min=0.1),
    default=10.0,
    show_default=True,
    help="How long pause, isolate, slow and disk-full last.",
)
@click.option(
    "--stall-ms",
    type=click.IntRange(1, 10_000),
    default=200,
    show_default=True,
    help="How long a slow process stops each time.",
)
@click.option(
    "--run-ms",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How long it runs between two stops.",
)
@click.option(
    "--allow-unsafe",
    is_flag=True,
    help=(
        "Break several brokers at once even if partitions lose leader, minimum ISR or last replica."
    ),
)
@click.option(
    "--limit-ms",
    type=click.IntRange(min=1),
    help="Longest recovery that passes, instead of the limit for this fault (below).",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=require_place,
    help="Write a report of the game day to this file, in Markdown.",
)
@data_option
@table_or_json
@click.pass_context
def command(
    ctx: click.Context,
    *,
    file: Path | None,
    targets: tuple[str, ...],
    fault: str | None,
    runs: int,
    rate: int,
    record_size: int,
    hold_s: float,
    stall_ms: int,
    run_ms: int,
    allow_unsafe: bool,
    limit_ms: int | None,
    report: Path | None,
    data: Path,
    output: str,
) -> int:
    """Kill, stop, pause, slow down, cut off a process or fill its disk; measure what clients see.

    A librdkafka producer with default settings (idempotent, acks=all) and a probe for each
    partition write numbered records; afterwards everything is read back and compared.
    """
    from fairlead_cli.drill.run import DrillPlan

    if file is not None:
        refuse_flags_beside_file(ctx)
        return run_manifest(file, data, output, report)
    if not targets or fault is None:
        raise click.UsageError("say what to break: --target and --fault, or -f FILE")
    plan = DrillPlan(
        targets=tuple(parse_target(text) for text in targets),
        kind=FaultKind(fault),
        runs=runs,
        rate=rate,
        record_size=record_size,
        hold_s=hold_s,
        stalls=Stalls(stall_ms, run_ms),
        allows_unsafe=allow_unsafe,
    )
    is_all = any(target.kind is TargetKind.ALL for target in plan.targets)
    if is_all != (plan.kind is FaultKind.ROLL) or (is_all and len(plan.targets) > 1):
        raise click.UsageError(
            "--target all takes --fault roll only, and --fault roll takes --target all only"
        )
    if plan.kind in (FaultKind.SLOW, FaultKind.DISK_FULL) and plan.is_controller:
        raise click.UsageError("only brokers can be slow, or have a full disk")
    return run_plan(plan, limit_ms, data, output, report)


def refuse_flags_beside_file(ctx: click.Context) -> None:
    """Refuse options for values that are in the file."""
    from click.core import ParameterSource

    for parameter in ctx.command.params:
        name = parameter.name or ""
        is_ours = name not in {"file", "data", "output", "report"}
        if is_ours and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = parameter.opts[-1]
            raise click.UsageError(f"{option} cannot be used with -f: set it in the file")


def run_plan(
    plan: DrillPlan, limit_ms: int | None, data: Path, output: str, report: Path | None
) -> int:
    """Run a drill from options, judged by the limits in the documentation."""
    from fairlead_cli.drill.limits import default_limit_ms, find_failures, judged_timing
    from fairlead_cli.drill.report import build_document

    outcome = perform(plan, data)
    timing = judged_timing(plan.kind, is_broker=plan.is_broker)
    limit = limit_ms or default_limit_ms(
        plan.kind, is_broker=plan.is_broker, is_controller=plan.is_controller
    )
    failures = find_failures(
        outcome.runs, outcome.findings, outcome.client_errors, timing=timing, limit_ms=limit
    )
    document = build_document(plan, outcome, failures, timing=timing, limit_ms=limit)
    exit_code = finish(document, output=output)
    write_report(report, document, outcome)
    return exit_code


def run_manifest(file: Path, data: Path, output: str, report: Path | None) -> int:
    """Run a drill from a file, judged by the file's limits."""
    from fairlead_cli.drill.manifest import (
        find_manifest_failures,
        judged_manifest_timing,
        plan_drill,
        read_drill_manifest,
    )
    from fairlead_cli.drill.report import build_document
    from fairlead_cli.output import note

    spec: FailoverDrillSpec = read_drill_manifest(file)
    if spec.schedule is not None:
        note("spec.schedule is for Kubernetes: the drill is run once, now.")
    plan = plan_drill(spec)
    outcome = perform(plan, data)
    document = build_document(
        plan,
        outcome,
        find_manifest_failures(spec, outcome),
        timing=judged_manifest_timing(spec),
        limit_ms=spec.limits.recovery_ms,
    )
    exit_code = finish(document, output=output)
    write_report(report, document, outcome)
    return exit_code


def write_report(path: Path | None, document: dict[str, Any], outcome: DrillOutcome) -> None:
    """Write the game day's document, if it is wanted."""
    if path is None:
        return
    import shlex
    import sys
    from datetime import UTC, datetime

    from fairlead_cli.drill.game_day import of_document, render

    began = datetime.fromtimestamp(outcome.started_at, UTC).isoformat(timespec="seconds")
    repeat = shlex.join(["fairlead", *sys.argv[1:]])
    try:
        path.write_text(render(of_document(document, began, repeat)), encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write the report {path}: {error.strerror}") from error


def perform(plan: DrillPlan, data: Path) -> DrillOutcome:
    """Run a drill, and clean up in any case."""
    import asyncio

    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.drill.run import Drill
    from fairlead_cli.output import note

    drill = Drill(data, plan, build_admin(resolve_bootstrap(None, data)), note)
    try:
        return asyncio.run(run_until_signalled(drill))
    finally:
        drill.clean_up()


def finish(document: dict[str, Any], *, output: str) -> int:
    """Print the outcome; the exit code says whether the drill has passed."""
    from fairlead_cli.drill.report import print_report
    from fairlead_cli.output import print_json

    if output == "json":
        print_json(document)
    else:
        print_report(document)
    return ExitCode.OK if document["passed"] else ExitCode.FAILED
