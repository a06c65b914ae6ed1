"""`fairlead broker pause` is done when the broker stands still, not when it was told to."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.local import control
from fairlead_cli.local.cluster_file import ProcessEntry
from fairlead_cli.local.control import pause_process
from fairlead_cli.local.process_table import ProcessId, identify

SPIN = "while True: pass"


@pytest.fixture
def entry() -> Iterator[ProcessEntry]:
    """A process that has to share one processor with others that never rest."""
    spinners = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(3)]
    processor = {min(os.sched_getaffinity(0))}
    for spinner in spinners:
        os.sched_setaffinity(spinner.pid, processor)
    found = identify(spinners[0].pid)
    assert found is not None
    yield ProcessEntry(
        "broker-0", "127.0.0.1", 1, 2, pid=found.pid, start_time=found.start_time, id=0
    )
    for spinner in spinners:
        spinner.kill()
        spinner.wait()


def test_it_stands_still_when_that_is_said(entry: ProcessEntry) -> None:
    for _ in range(10):
        process = pause_process(entry)
        assert process.is_paused
        os.kill(process.pid, signal.SIGCONT)


def test_a_process_that_does_not_stand_still_is_said(
    entry: ProcessEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "PAUSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(ProcessId, "is_paused", property(lambda _: False))
    with pytest.raises(CliError, match="is not stopped"):
        pause_process(entry)


def test_a_process_that_ends_meanwhile_is_said(
    entry: ProcessEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(process: ProcessId) -> bool:
        os.kill(process.pid, signal.SIGKILL)
        return False

    monkeypatch.setattr(ProcessId, "is_paused", property(ends))
    with pytest.raises(CliError, match="broker-0 has just ended"):
        pause_process(entry)
