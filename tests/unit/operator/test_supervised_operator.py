"""What the tests on a real API server do when the kopf process ends before its test."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from operator_bench import SupervisedOperator
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import pathlib, sys, time
starts, over = map(pathlib.Path, sys.argv[1:3])
count = len(starts.read_text()) if starts.exists() else 0
starts.write_text("x" * (count + 1))
while count >= int(sys.argv[3]) and not over.exists():
    time.sleep(0.01)
print("it ends", flush=True)
sys.exit(int(sys.argv[4]))
"""


def operator_of(folder: Path, *, ends: int, code: int = 0) -> SupervisedOperator:
    """One that ends by itself so many times, and then stays until it is over."""
    arguments = (str(folder / "starts"), str(folder / "over"), str(ends), str(code))
    command = (sys.executable, "-c", PROGRAM, *arguments)
    return SupervisedOperator(os.environ, folder / "log", command)


def starts(folder: Path) -> int:
    path = folder / "starts"
    return len(path.read_text()) if path.exists() else 0


def test_it_is_started_again_until_it_is_over(tmp_path: Path) -> None:
    operator = operator_of(tmp_path, ends=2)
    wait_until(lambda: starts(tmp_path) == 3)
    assert operator.end((tmp_path / "over").touch) == 0
    assert starts(tmp_path) == 3
    assert (tmp_path / "log").read_text() == "it ends\n" * 3


def test_one_that_fails_is_not_started_again(tmp_path: Path) -> None:
    operator = operator_of(tmp_path, ends=1, code=3)
    wait_until(lambda: starts(tmp_path) == 1)
    assert operator.end((tmp_path / "over").touch) == 3
    assert starts(tmp_path) == 1
