"""The process of a Spark driver does not outlive the command that has started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from fairlead_cli.errors import CliError
from fairlead_cli.spark.driver_process import LOOK_S, DriverProcess

# Stands for `python -m fairlead_spark.job`, which the command starts.
JOB = """
import signal, sys, time

def end(*_):
    print("checkpoints written", flush=True)
    sys.exit(0)

if {ignores_end}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, end)
sys.stdout.buffer.write(b"\\xff is no text\\n")
sys.stdout.buffer.write(b"running\\n")
sys.stdout.flush()
time.sleep(300)
"""
COMMAND = """
import signal
from pathlib import Path
from fairlead_cli.spark.driver_process import DriverProcess

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
driver = DriverProcess(Path("run"), {"name": "job"})
start = driver._start

def start_and_tell(log):
    start(log)
    Path("pid").write_text(str(driver._process.pid))

driver._start = start_and_tell
driver.prepare()
driver.run(with_progress=False)
"""


def start_command(
    folder: Path, *, ignores_end: bool = False, job: str = JOB
) -> tuple[subprocess.Popen[str], int]:
    """Return the command, which runs its job, and the process of the driver."""
    package = folder / "fairlead_spark"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "job.py").write_text(job.format(ignores_end=ignores_end))
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
        )
    assert process.stdout is not None
    while process.stdout.readline() != "running\n":
        assert process.poll() is None
    return process, int((folder / "pid").read_text())


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_ends_its_driver(tmp_path: Path, number: signal.Signals) -> None:
    """By `timeout`, or a terminal that closes: the next run would have the same checkpoint."""
    process, driver = start_command(tmp_path)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    wait_until(lambda: not is_there(driver))


def test_a_reader_that_goes_away_ends_the_driver(tmp_path: Path) -> None:
    """As `| head` does: the job waited for ever, in the middle of its line."""
    job = JOB.replace("time.sleep(300)", "while True: print('x' * 1000, flush=True)")
    process, driver = start_command(tmp_path, job=job)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) != 0
    assert "BrokenPipeError" in (tmp_path / "errors").read_text()
    wait_until(lambda: not is_there(driver))


def test_output_of_a_driver_that_has_ended_waits_for_a_slow_reader(tmp_path: Path) -> None:
    # More than one pipe takes, and less than two.
    lines = 1_000
    job = JOB.replace("time.sleep(300)", f"print('\\n'.join(['x' * 100] * {lines}), flush=True)")
    process, driver = start_command(tmp_path, job=job)
    wait_until(lambda: not is_there(driver))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2 * LOOK_S)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read().count("x" * 100) == lines
    assert process.wait(60) == 0


def test_a_job_that_runs_is_not_run_a_second_time(tmp_path: Path) -> None:
    """Both wrote one log, one document and one checkpoint; --fresh deleted what the first has."""
    process, driver = start_command(tmp_path)
    document = tmp_path / "run" / "job.json"
    before = document.read_text()
    second = DriverProcess(tmp_path / "run", {"name": "job", "other": True})
    with pytest.raises(CliError, match="the job job runs already"):
        second.prepare()
    assert document.read_text() == before
    process.kill()
    process.communicate(timeout=60)
    assert is_there(driver)
    with pytest.raises(CliError, match="the job job runs already"):
        second.prepare()
    os.kill(driver, signal.SIGKILL)
    wait_until(lambda: can_prepare(second))
    assert document.read_text() != before


def can_prepare(process: DriverProcess) -> bool:
    try:
        process.prepare()
    except CliError:
        return False
    return True


def test_a_second_ctrl_c_ends_a_driver_that_takes_long(tmp_path: Path) -> None:
    process, driver = start_command(tmp_path, ignores_end=True)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    wait_until(lambda: not is_there(driver))


LOG = """\
26/11/30 08:55:11 WARN Utils: a JavaError: nothing of note
Traceback (most recent call last):
  File "protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
{error}
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("ValueError: no such column", "ValueError: no such column"),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling None.a.JavaContext.\n"
            ": org.apache.spark.SparkException: Could not parse Master URL: 'local[x'\n"
            "\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:603)",
            "org.apache.spark.SparkException: Could not parse Master URL: 'local[x'",
        ),
    ],
    ids=["Python's", "Java's"],
)
def test_the_error_that_ended_a_job_is_told(error: str, told: str, tmp_path: Path) -> None:
    """Py4J's own line says only that there was one; Java's is below it."""
    driver = DriverProcess(tmp_path, {"name": "job"})
    driver.prepare()
    driver.log_file.write_text(LOG.format(error=error))
    assert driver.describe_failure() == told
