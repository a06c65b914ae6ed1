"""Writes what the failover drills have measured into docs/failover.md, between two marks."""

from pathlib import Path
from typing import Any

BEGIN, END = "<!-- drills: written by `make drills` -->", "<!-- /drills -->"
FAULTS = {
    "kill": "kill -9",
    "stop": "clean stop",
    "pause": "SIGSTOP {hold}, SIGCONT",
    "isolate": "network cut {hold}",
}
TARGETS = ("leader", "follower", "controller", "leader + controller")
COLUMNS = ("detection_ms", "election_ms", "recovery_ms", "longest_gap_ms")
HEAD = (
    "| fault | of | runs | detection | election | first new ack | longest gap | judged, limit "
    "| lost | doubled | reordered | client errors |"
)


def write_drill_table(path: Path, rows: list[dict[str, Any]], *, hold: str = "10 s") -> None:
    """Put new lines in the place of the old ones; drills that were not run keep theirs."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    table, end, after = rest.partition(END)
    assert end, f"{path} has no marks for the table"
    head, ruler, *measured = build_table(rows, hold)
    lines = {key_of(line): line for line in table.splitlines() if line.startswith("|")}
    lines.pop(key_of(head), None)
    lines.pop(key_of(ruler), None)
    lines.update({key_of(line): line for line in measured})
    whole = [head, ruler, *(lines[key] for key in sorted(lines, key=order_of))]
    path.write_text("\n".join([f"{before}{BEGIN}", "", *whole, "", END + after]))


def key_of(line: str) -> tuple[str, str]:
    """Fault and target of a line."""
    _, fault, target, *_ = line.split("|")
    return fault.strip(), target.strip()


def order_of(key: tuple[str, str]) -> tuple[int, int]:
    """Faults and targets as the page speaks of them; unknown ones first."""
    fault, target = key
    faults = [name.split("{", maxsplit=1)[0] for name in FAULTS.values()]
    place = next((i for i, name in enumerate(faults) if fault.startswith(name.strip())), -1)
    return place, TARGETS.index(target) if target in TARGETS else -1


def build_table(rows: list[dict[str, Any]], hold: str) -> list[str]:
    """Markdown lines; times as p50 / p99 / max in milliseconds."""
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for row in rows:
        summary, check = row["summary"], row["check"]
        times = [format_times(summary.get(column)) for column in COLUMNS]
        judged = "first ack" if row["limit"]["timing"] == "recovery_ms" else "gap"
        cells = [
            FAULTS[row["fault"]].format(hold=hold),
            row["target"].replace("+", " + "),
            str(len(row["runs"])),
            *times,
            f"{judged} ≤ {row['limit']['p99Ms']:,}",
            *(str(check[name]) for name in ("lost", "duplicated", "reordered")),
            str(sum(row["workload"]["clientErrors"].values())),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def format_times(of: dict[str, int] | None) -> str:
    """`p50 / p99 / max`, or a dash for what does not happen."""
    return "-" if of is None else f"{of['p50']:,} / {of['p99']:,} / {of['max']:,}"
