"""What tests cost is added up by file, over their fixtures and children, also from workers."""

import subprocess
import sys
from pathlib import Path

import pytest

SPENDING = """
import subprocess, sys

BURN = "import time\\nwhile time.process_time() < 0.4: pass"

def test_burns_in_a_child():
    subprocess.run([sys.executable, "-c", BURN], check=True)
"""
IDLE = """
import time

def test_waits():
    time.sleep(0.4)
"""
PLUGIN = """
import cpu_report
cpu_report._WORTH_SHOWING_S = 0.1

def pytest_configure(config):
    config.pluginmanager.register(cpu_report.CpuReport(), "cpu-report")
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_files_are_named_by_the_processor_time_that_their_tests_took(
    workers: str, tmp_path: Path
) -> None:
    (tmp_path / "test_spending.py").write_text(SPENDING)
    (tmp_path / "test_idle.py").write_text(IDLE)
    (tmp_path / "conftest.py").write_text(PLUGIN)
    support = Path(__file__).parents[2] / "support" / "suite"
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [*command, "--override-ini", f"pythonpath={support}", "-n", workers, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.partition(" processor time ")[2].splitlines()
    assert [line.split()[-1] for line in lines[2:4]] == ["test_spending.py", "test_idle.py"]
