"""`make bench ARGS="--only failover"` with one kill: every application is measured and judged."""

import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.loads.failover_client import runnable_names  # noqa: E402
from fairlead_bench.peers.fairlead_cluster import FairleadCluster  # noqa: E402
from fairlead_bench.report.results import Results  # noqa: E402
from fairlead_bench.scenarios.failover import FailoverRun  # noqa: E402

# Every application is measured alone: on a busy machine that is half of what other tests have.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Applications wait no longer than this even where a test suite uses the machine, too.
BOUND_MS = 10_000


def test_a_kill_is_felt_by_every_application_and_loses_nothing(tmp_path: Path) -> None:
    results, said = Results(), list[str]()
    peers = {"fairlead": FairleadCluster}
    FailoverRun(peers, results, runs=1, say=said.append).measure(tmp_path)
    for name in runnable_names(said.append):
        (wait_ms,) = results.values["fairlead", f"failover_{name}"]
        assert 0 < wait_ms < BOUND_MS, said
    for what in ("lost", "damaged", "errors"):
        assert results.values["fairlead", f"failover_{what}"] == [0], said
