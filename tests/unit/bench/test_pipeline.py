"""The pipeline among kills: none is right that nothing befell, and no driver outlives its run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.scenarios import pipeline, pipeline_run
from fairlead_bench.scenarios.pipeline_job import RESULT
from fairlead_bench.scenarios.pipeline_run import PipelineFailedError

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 1000


class Drivers:
    """Starts processes in place of Spark's drivers."""

    def __init__(self, program: str) -> None:
        self._program = program
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, _document: Path, log: Path, *, new_session: bool) -> subprocess.Popen[bytes]:
        log.touch()
        self.started.append(
            subprocess.Popen([sys.executable, "-c", self._program], start_new_session=new_session)
        )
        return self.started[-1]


def run(
    tmp_path: Path, cluster: FairleadCluster, drivers: Drivers, patch: pytest.MonkeyPatch
) -> None:
    sink: dict[str, Any] = {"topic": RESULT, "format": None}
    patch.setattr(pipeline_run, "start_driver", drivers.start)
    patch.setattr(pipeline_run, "ANSWER_S", 0.1)
    pipeline.run_job(cluster, tmp_path, "transform", sink, RECORDS)


@pytest.fixture
def cluster(tmp_path: Path) -> FairleadCluster:
    """Nobody of it runs."""
    return FairleadCluster(tmp_path / "cluster")


def test_a_job_that_ends_before_its_kills_is_no_proof(
    tmp_path: Path, cluster: FairleadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PipelineFailedError, match="ended before 2 faults were due"):
        run(tmp_path, cluster, Drivers("pass"), monkeypatch)


def test_a_driver_that_takes_too_long_is_ended(
    tmp_path: Path, cluster: FairleadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_run, "JOB_TIMEOUT_S", 0.5)
    drivers = Drivers("import time; time.sleep(600)")
    with pytest.raises(PipelineFailedError, match="not done in time"):
        run(tmp_path, cluster, drivers, monkeypatch)
    (driver,) = drivers.started
    assert driver.returncode is not None
