"""Processes of one driver know each other; those of two do not."""

import os
import subprocess
import sys

from fairlead_spark.group.driver_identity import is_alive, read_driver

SHOW = "from fairlead_spark.group.driver_identity import read_driver; print(read_driver())"


def started_here() -> str:
    command = [sys.executable, "-c", SHOW]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def test_children_of_one_process_are_of_one_driver() -> None:
    assert started_here() == started_here()


def test_another_parent_is_another_driver() -> None:
    assert started_here() != read_driver()


def test_who_runs() -> None:
    assert is_alive(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert not is_alive(ended.pid)
