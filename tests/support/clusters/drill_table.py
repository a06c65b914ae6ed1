"""Writes the results of the failover drills into docs/failover.md, between two marks."""

import re
from pathlib import Path
from typing import Any, Final

BEGIN, END = "<!-- drills: written by `make drills` -->", "<!-- /drills -->"
ZOOKEEPER_BEGIN = "<!-- drills with ZooKeeper: written by `make drills` -->"
SECURE_BEGIN = "<!-- drills of a secure cluster: written by `make drills` -->"
FAULTS = {
    "kill": "kill -9",
    "stop": "clean stop",
    "pause": "SIGSTOP {hold}, SIGCONT",
    "isolate": "network cut {hold}",
}
TARGETS = ("leader", "follower", "controller", "leader + controller")
TIMES: Final = {
    "detection": "detection_ms",
    "election": "election_ms",
    "first new ack": "recovery_ms",
    "longest gap": "longest_gap_ms",
}
COUNTS: Final = {"lost": "lost", "duplicated": "doubled", "reordered": "reordered"}
ITEM: Final = re.compile(r"^\* \*\*(.+?)\*\* of (.+?),(?:.*)\n(?:  .*\n)*", re.MULTILINE)


def write_drill_table(
    path: Path, rows: list[dict[str, Any]], *, hold: str = "10 s", begin: str = BEGIN
) -> None:
    """Replace old items by new ones; drills that were not run keep theirs."""
    text = path.read_text()
    before, _, rest = text.partition(begin)
    table, end, after = rest.partition(END)
    assert end, f"{path} has no marks for the table"
    items = {(match[1], match[2]): match[0] for match in ITEM.finditer(table)}
    for row in rows:
        item = build_item(row, hold)
        match = ITEM.fullmatch(item)
        assert match is not None, item
        items[match[1], match[2]] = item
    ordered = "".join(items[key] for key in sorted(items, key=order_of))
    path.write_text(f"{before}{begin}\n\n{ordered}\n{END}{after}")


def order_of(key: tuple[str, str]) -> tuple[int, int]:
    """Return the page's order of faults and targets; unknown ones come first."""
    fault, target = key
    faults = [name.split("{", maxsplit=1)[0] for name in FAULTS.values()]
    place = next((i for i, name in enumerate(faults) if fault.startswith(name.strip())), -1)
    return place, TARGETS.index(target) if target in TARGETS else -1


def build_item(row: dict[str, Any], hold: str) -> str:
    """Write one drill as an item of a list; times as p50 / p99 / max in milliseconds."""
    summary, check = row["summary"], row["check"]
    times = [
        f"{name} {of['p50']:,} / {of['p99']:,} / {of['max']:,}"
        for name, column in TIMES.items()
        if (of := summary.get(column)) is not None
    ]
    fault = FAULTS[row["fault"]].format(hold=hold)
    target = row["target"].replace("+", " + ")
    judged = "first new ack" if row["limit"]["timing"] == "recovery_ms" else "longest gap"
    counts = [f"{check[name]} {word}" for name, word in COUNTS.items()]
    counts.append(f"{sum(row['workload']['clientErrors'].values())} client errors")
    lines = [", ".join(times[:2]), *([", ".join(times[2:])] if times[2:] else [])]
    return (
        f"* **{fault}** of {target}, {len(row['runs'])} runs, limit: {judged} "
        f"≤ {row['limit']['p99Ms']:,}:\n"
        + "".join(f"  {line},\n" for line in lines)
        + f"  {', '.join(counts)}\n"
    )
