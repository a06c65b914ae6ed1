"""A benchmark that is ended from outside leaves no process and no data behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from waiting import DEADLINE_S, wait_until

from fairlead_bench.project import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

CONTROLLER_AND_BROKERS = 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_run_that_was_ended(tmp_path: Path, number: signal.Signals) -> None:
    arguments = ["--partitions", "100000", "--data", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, str(PROJECT / "benchmarks" / "scale.py"), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        started: list[psutil.Process] = []

        def is_measuring() -> bool:
            started[:] = psutil.Process(run.pid).children(recursive=True)
            return len(started) >= CONTROLLER_AND_BROKERS

        wait_until(is_measuring, "the cluster is not started")
        run.send_signal(number)
        _, said = run.communicate(timeout=90)
    _, alive = psutil.wait_procs(started, timeout=DEADLINE_S)
    for each in alive:
        each.kill()
    assert alive == []
    assert list(tmp_path.iterdir()) == []
    assert said == "ended before it was done: its processes were stopped\n"
    assert run.returncode == 130
