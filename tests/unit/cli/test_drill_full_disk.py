"""The process that keeps a disk full during a drill hears of the end by its input alone."""

import os
import signal
import subprocess
import sys

import pytest

DRILL = """
import signal
from fairlead_cli.drill.full_disks import FullDisks

full = FullDisks([])
ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
print("full", flush=True)
signal.sigwait(ends)
full.empty()
print("the keeper ended with", full._keeper.returncode)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_for_the_drill_which_heals(number: signal.Signals) -> None:
    """Ctrl-C, `timeout` and a terminal that closes send theirs to all of the process group.

    On SIGTERM and SIGHUP the keeper ended where it was, and left the disk full.
    """
    drill = subprocess.Popen(
        [sys.executable, "-c", DRILL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert drill.stdout is not None
    assert drill.stdout.readline() == "full\n"
    os.killpg(drill.pid, number)
    assert drill.communicate(timeout=60) == ("the keeper ended with 0\n", "")
