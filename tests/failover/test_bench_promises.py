"""`make bench ARGS="--only promises"` with one kill: what acks=all acknowledged is there."""

import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.peers.fairlead_cluster import FairleadCluster  # noqa: E402
from fairlead_bench.report.results import Results  # noqa: E402
from fairlead_bench.scenarios.promise_cells import Cell  # noqa: E402
from fairlead_bench.scenarios.promises import PromiseSizes, PromisesRun  # noqa: E402

pytestmark = pytest.mark.slow


def test_a_killed_leader_costs_what_each_acknowledgement_allows(tmp_path: Path) -> None:
    results, said = Results(), list[str]()
    cells = (Cell("1", 1, 1), Cell("all", 2, 2), Cell("all", 3, 2))
    PromisesRun(
        {"fairlead": FairleadCluster},
        PromiseSizes(produce_records=1_000, latency_s=1, kills=1),
        results,
        say=said.append,
        settle=lambda: None,
        cells=cells,
    ).measure(tmp_path)
    values = results.values
    for cell in cells:
        assert len(results.samples["fairlead", f"{cell.key}_produce"]) == 1
        assert len(results.samples["fairlead", f"{cell.key}_latency"]) == 1
        assert values["fairlead", f"{cell.key}_lost"][0] >= 0
    # Two in sync of two: nothing is taken while one is away.
    assert values["fairlead", f"{cells[1].key}_refused"][0] > 0, said
    for cell in cells[1:]:
        assert values["fairlead", f"{cell.key}_lost"] == [0], said
