"""Stops processes with SIGSTOP."""

import os
import signal
from pathlib import Path

from waiting import wait_until

STOPPED_S = 20


def stand_still(pid: int) -> None:
    """Send SIGSTOP to a process; return when all its threads have stopped.

    Each thread stops only when it would run next. On a busy machine that takes a while, and until
    then other threads may still answer.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state == "T" for state in _thread_states(pid)), deadline_s=STOPPED_S)


def _thread_states(pid: int) -> list[str]:
    """Return `T` for each thread that is stopped, as proc(5) has it."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [stat.rpartition(") ")[2][0] for stat in stats]
