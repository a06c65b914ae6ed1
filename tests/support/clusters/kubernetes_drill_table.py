"""Writes the results of drills on Kubernetes into docs/failover.md, between two marks."""

from pathlib import Path
from statistics import median
from typing import Any

BEGIN = "<!-- kubernetes drills: written by `make drills-kubernetes` -->"
END = "<!-- /kubernetes drills -->"
HEAD = (
    "| drill | runs | detection | election | first new ack | longest gap "
    "| limit | lost | doubled | reordered | errors |"
)
TIMES = ("detectionMs", "electionMs", "recoveryMaxMs", "longestGapMs")


def write_kubernetes_drills(
    path: Path, name: str, status: dict[str, Any], promised_ms: int
) -> None:
    """Replace the old line of a drill; the other lines stay."""
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    table, end, after = rest.partition(END)
    assert begin, f"{path} has no mark for the drills on Kubernetes"
    assert end, f"{path} has no end mark for the drills on Kubernetes"
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    lines = {row.split("|")[1].strip(): row for row in rows if row != HEAD}
    lines[name] = build_line(name, status, promised_ms)
    ruler = "|---" * (HEAD.count("|") - 1) + "|"
    whole = [HEAD, ruler, *(lines[key] for key in sorted(lines))]
    path.write_text("\n".join([f"{before}{BEGIN}", "", *whole, "", END + after]))


def build_line(name: str, status: dict[str, Any], promised_ms: int) -> str:
    """One drill; times as p50 / max over its runs, in milliseconds."""
    runs = status["runs"]
    times = [format_times([run[key] for run in runs if run.get(key) is not None]) for key in TIMES]
    counts = [status[key] for key in ("lost", "duplicates", "reordered", "clientErrors")]
    return " | ".join(["|" + f" {name}", str(len(runs)), *times, f"{promised_ms} ms"]) + (
        " | " + " | ".join(map(str, counts)) + " |"
    )


def format_times(values: list[int]) -> str:
    """The median and the worst."""
    return f"{round(median(values))} / {max(values)}" if values else ""
