"""The document of a game day, in Markdown, written by the drill itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlead_cli.drill.timings import P50, P99, TIMINGS, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FIGURES = {
    "detectionMs": "detection",
    "electionMs": "election",
    "recoveryP50Ms": "recovery, median partition",
    "recoveryMaxMs": "recovery, slowest partition",
    "longestGapMs": "longest gap",
    "commitBeforeP99Ms": "commit p99, before",
    "commitP99Ms": "commit p99, during the fault",
    "leftIsrMs": "out of the in-sync set",
    "fastAgainMs": "commits fast again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GameDay:
    """The facts about a drill; `figures` has the milliseconds of each run that has them."""

    title: str
    began: str
    broken: Sequence[str]
    """One line for each run: the fault and its time."""
    figures: Mapping[str, Sequence[int]]
    timeline: Sequence[tuple[int, str]] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    forecasts: Sequence[tuple[int | None, int | None]] = ()
    """For each run, how many leaders the forecast expected to move, and how many moved."""
    limits: Sequence[str] = ()
    is_passed: bool | None = None
    verdict: Sequence[str] = ()
    repeat: str = ""


def render(day: GameDay) -> str:
    """Return the document."""
    word = {True: "Passed", False: "Failed", None: "Not finished"}[day.is_passed]
    parts = [
        f"# Game day: {day.title}\n\n**{word}.** Began {day.began}.\n",
        "## What was broken\n\n" + _listed(day.broken),
        _render_timeline(day.timeline),
        _render_figures(day.figures),
        _render_counts(day.counts),
        _render_forecasts(day.forecasts),
        "## Verdict\n\n" + _listed([*day.verdict, *(f"limit: {limit}" for limit in day.limits)]),
        f"## How to repeat it\n\n```\n{day.repeat.strip()}\n```\n",
    ]
    return "\n".join(part for part in parts if part)


def _listed(lines: Iterable[str]) -> str:
    # A quoted line, from another program, must stay one line.
    return "".join(f"* {' '.join(line.split())}\n" for line in lines) or "Nothing.\n"


def _render_timeline(timeline: Sequence[tuple[int, str]]) -> str:
    if not timeline:
        return ""
    rows = "".join(f"| {at:,} | {' '.join(what.split())} |\n" for at, what in timeline)
    return (
        f"## Timeline of the last run\n\n| ms after the fault | what happened |\n|---:|---|\n{rows}"
    )


def _render_figures(figures: Mapping[str, Sequence[int]]) -> str:
    rows = [
        f"| {name} | {len(values)} | {percentile(list(values), P50):,} "
        f"| {percentile(list(values), P99):,} | {max(values):,} |\n"
        for name, values in figures.items()
        if values
    ]
    if not rows:
        return ""
    head = "| milliseconds | runs | p50 | p99 | max |\n|---|---:|---:|---:|---:|\n"
    return f"## What clients saw\n\n{head}{''.join(rows)}"


def _render_counts(counts: Mapping[str, int]) -> str:
    lines = [f"{count:,} records {what}" for what, count in counts.items()]
    return _listed(lines) if lines else ""


def _render_forecasts(forecasts: Sequence[tuple[int | None, int | None]]) -> str:
    rows = "".join(
        f"| {number} | {told} | {'-' if moved is None else moved} |\n"
        for number, (told, moved) in enumerate(forecasts, 1)
        if told is not None
    )
    head = "| run | leaders foretold to move | leaders that moved |\n|---:|---:|---:|\n"
    return f"## Forecast and measurement\n\n{head}{rows}" if rows else ""


def of_document(document: Mapping[str, Any], began: str, repeat: str) -> GameDay:
    """Read the JSON output of a local drill."""
    runs, check = document["runs"], document["check"]
    limit = document["limit"]
    return GameDay(
        title=f"{document['fault']} of {' and '.join(document['targets'])}",
        began=began,
        broken=[
            f"run {number}: {' and '.join(run['target'])}" for number, run in enumerate(runs, 1)
        ],
        figures={
            text: [run[name] for run in runs if run[name] is not None]
            for name, text in TIMINGS.items()
        },
        timeline=_order(
            {
                text: runs[-1][name]
                for name, text in TIMINGS.items()
                if not name.startswith(("commit", "longest", "healed"))
            }
        )
        if runs
        else (),
        counts={name: check[name] for name in ("acknowledged", "lost", "duplicated", "reordered")},
        forecasts=[((run["forecast"] or {}).get("leadersMove"), None) for run in runs],
        limits=[]
        if limit["p99Ms"] is None
        else [f"{TIMINGS[limit['timing']]} {limit['p99Ms']} ms"],
        is_passed=bool(document["passed"]),
        verdict=document["failures"] or ["within its limits, nothing lost"],
        repeat=repeat,
    )


def of_resource(drill: Mapping[str, Any]) -> GameDay:
    """Read a FailoverDrill."""
    import yaml

    spec, status = drill["spec"], drill.get("status") or {}
    runs = status.get("runs") or []
    said = {entry["type"]: entry for entry in status.get("conditions") or ()}
    passed = said.get("Passed", {})
    metadata = {"generateName": f"{drill['metadata']['name']}-"}
    manifest = {key: drill[key] for key in ("apiVersion", "kind")} | {"metadata": metadata}
    return GameDay(
        title=drill["metadata"]["name"],
        began=str(status.get("startedAt") or drill["metadata"].get("creationTimestamp", "")),
        broken=[
            f"run {number}: {spec['fault']['type']} of {run.get('target', '')}, "
            f"{run.get('faultAt', '')}"
            for number, run in enumerate(runs, 1)
        ],
        figures={
            text: [run[name] for run in runs if run.get(name) is not None]
            for name, text in FIGURES.items()
        },
        timeline=[(it["offsetMs"], it["event"]) for it in status.get("timeline") or ()],
        counts={
            name: status[key]
            for key, name in (
                ("acknowledged", "acknowledged"),
                ("lost", "lost"),
                ("duplicates", "doubled"),
                ("reordered", "reordered"),
                ("clientErrors", "given up by the client"),
            )
            if status.get(key) is not None
        },
        forecasts=[(run.get("forecastLeaders"), run.get("movedLeaders")) for run in runs],
        limits=[f"{name} {value}" for name, value in (spec.get("limits") or {}).items()],
        is_passed={"True": True, "False": False}.get(passed.get("status", "")),
        verdict=[
            str(passed.get("message") or said.get("Complete", {}).get("message", "not begun"))
        ],
        repeat="kubectl create -f - <<EOF\n"
        + yaml.safe_dump(manifest | {"spec": spec}, sort_keys=False)
        + "EOF",
    )


def _order(times: Mapping[str, int | None]) -> list[tuple[int, str]]:
    known = [(at, what) for what, at in times.items() if at is not None]
    return [(0, "the fault"), *sorted(known)]
