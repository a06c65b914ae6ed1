"""The measurements of docs/failover.md: new items replace old ones, the others stay."""

from pathlib import Path
from typing import Any

from drill_table import BEGIN, END, write_drill_table


def row(fault: str, target: str, recovery_ms: int) -> dict[str, Any]:
    return {
        "fault": fault,
        "target": target,
        "runs": [{}, {}],
        "summary": {"recovery_ms": {"p50": 1, "p99": 2, "max": recovery_ms}},
        "limit": {"timing": "recovery_ms", "p99Ms": 2000},
        "check": {"lost": 0, "duplicated": 0, "reordered": 0},
        "workload": {"clientErrors": {}},
    }


def test_items_are_replaced_and_kept_in_order(tmp_path: Path) -> None:
    page = tmp_path / "failover.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    write_drill_table(page, [row("pause", "leader", 1500), row("kill", "leader+controller", 40)])
    write_drill_table(page, [row("kill", "leader", 30), row("pause", "leader", 1234)])
    before, *lines, after = [
        line for line in page.read_text().splitlines() if line and "drills" not in line
    ]
    assert (before, after) == ("before", "after")
    assert [line for line in lines if line.startswith("* ")] == [
        "* **kill -9** of leader, 2 runs, limit: first new ack ≤ 2,000:",
        "* **kill -9** of leader + controller, 2 runs, limit: first new ack ≤ 2,000:",
        "* **SIGSTOP 10 s, SIGCONT** of leader, 2 runs, limit: first new ack ≤ 2,000:",
    ]
    assert lines[-2:] == [
        "  first new ack 1 / 2 / 1,234,",
        "  0 lost, 0 doubled, 0 reordered, 0 client errors",
    ]
    assert page.read_text().count(BEGIN) == 1
