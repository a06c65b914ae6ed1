"""A drill's outcome for people and for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.drill.timings import TIMINGS, summarize
from fairlead_cli.output import print_table, tell

if TYPE_CHECKING:
    from fairlead_cli.drill.run import DrillOutcome, DrillPlan


def build_document(
    plan: DrillPlan,
    outcome: DrillOutcome,
    failures: list[str],
    *,
    timing: str,
    limit_ms: int | None,
) -> dict[str, Any]:
    """Return the outcome as JSON."""
    return {
        "passed": not failures,
        "failures": failures,
        "targets": [str(target) for target in plan.targets],
        "fault": plan.kind.value,
        "limit": {"timing": timing, "p99Ms": limit_ms},
        "runs": [run.as_json() for run in outcome.runs],
        "summary": {name: asdict(of) for name, of in summarize(outcome.runs).items()},
        "check": asdict(outcome.findings),
        "workload": {
            "topic": outcome.topic,
            "partitions": outcome.partitions,
            "rate": plan.rate,
            "recordSize": plan.record_size,
            "clientErrors": outcome.client_errors,
            "probeRefusals": outcome.probe_refusals,
        },
        "seconds": round(outcome.seconds, 1),
    }


def print_report(document: dict[str, Any]) -> None:
    """Print the timings, the findings and the verdict."""
    summary = document["summary"]
    print_table(
        ("milliseconds after the fault", "runs", "p50", "p99", "max"),
        [
            (TIMINGS[name], *(str(of[column]) for column in ("count", "p50", "p99", "max")))
            for name, of in summary.items()
        ],
        right=("runs", "p50", "p99", "max"),
    )
    check = document["check"]
    tell(
        f"{check['sent']:,} records sent, {check['acknowledged']:,} acknowledged, "
        f"{check['found']:,} found: {check['lost']} lost, {check['duplicated']} duplicated, "
        f"{check['reordered']} reordered."
    )
    for example in check["examples"]:
        tell(f"  {example}")
    for failure in document["failures"]:
        tell(f"{click.style('FAILED', fg='red', bold=True)}: {failure}")
    if document["passed"]:
        limit = document["limit"]
        within = f"{TIMINGS[limit['timing']]} within {limit['p99Ms']} ms"
        verdict = "within its limits" if limit["p99Ms"] is None else within
        tell(f"{click.style('Passed', fg='green', bold=True)}: {verdict}, nothing lost.")
