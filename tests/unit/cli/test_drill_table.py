"""The table of docs/failover.md: new lines replace old ones, the others stay."""

from pathlib import Path
from typing import Any

from drill_table import BEGIN, END, HEAD, write_drill_table


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


def test_lines_are_replaced_and_kept_in_order(tmp_path: Path) -> None:
    page = tmp_path / "failover.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    write_drill_table(page, [row("pause", "leader", 1500), row("kill", "leader+controller", 40)])
    write_drill_table(page, [row("kill", "leader", 30), row("pause", "leader", 1234)])
    before, head, ruler, *lines, after = [
        line for line in page.read_text().splitlines() if line and "drills" not in line
    ]
    assert (before, head, after) == ("before", HEAD, "after")
    assert set(ruler) == {"|", "-"}
    assert [line.split("|")[1:3] for line in lines] == [
        [" kill -9 ", " leader "],
        [" kill -9 ", " leader + controller "],
        [" SIGSTOP 10 s, SIGCONT ", " leader "],
    ]
    assert "1 / 2 / 1,234" in lines[2]
    assert page.read_text().count(BEGIN) == 1
