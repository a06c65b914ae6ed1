"""Whom a pipeline's faults find among the processes of a driver's session."""

import subprocess
import sys
import time

import psutil

from fairlead_bench.scenarios.pipeline_job import EXECUTOR
from fairlead_bench.scenarios.pipeline_run import SparkProcesses

SLEEPER = "import time; time.sleep(60)"
PARENT_OF_A_ZOMBIE = f"import subprocess; child = subprocess.Popen(['true']); {SLEEPER}"
LIMIT_S = 10.0


def test_a_zombie_among_them_hides_no_executor() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", PARENT_OF_A_ZOMBIE, EXECUTOR], start_new_session=True
    )
    try:
        wait_for_a_zombie(driver.pid)
        processes = SparkProcesses(driver)
        assert len(processes.all()) == 2
        assert [each.pid for each in processes.executors()] == [driver.pid]
        assert processes.tasks() == []
    finally:
        driver.kill()
        driver.wait()


def wait_for_a_zombie(parent: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        children = psutil.Process(parent).children()
        if [each.status() for each in children] == [psutil.STATUS_ZOMBIE]:
            return
        time.sleep(0.01)
    raise AssertionError("no zombie came")
