"""The pipe to process 1 of this container, which injects a drill's faults.

A process cannot stop itself and resume later. `fairlead_pod.child` describes the lines.
"""

import os
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "FAIRLEAD_SUPERVISOR_FD"


class SupervisorPipe:
    """Writes lines; from here on only this process uses the descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Raise OSError if no file is open under that number."""
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def carry_out(self, fault: str, duration_ms: int) -> None:
        """Inject a fault into this process; after `kill` and `pause` nothing may follow."""
        line = f"pause {duration_ms}" if fault == "pause" else fault
        os.write(self._descriptor, line.encode() + b"\n")


def find_supervisor(environment: Mapping[str, str]) -> SupervisorPipe | None:
    """Return the pipe that the environment names, if it is open."""
    text = environment.get(VARIABLE, "")
    if not text.isdecimal():
        return None
    try:
        return SupervisorPipe(int(text))
    except OSError:
        return None  # The variable was inherited, the pipe was not.
