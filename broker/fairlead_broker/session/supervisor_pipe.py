"""The pipe to the process that looks after this broker in a container, where there is one.

Process 1 of the container does to the broker what a drill asks for: no process can stop itself and
wake again. It also keeps the broker's last words as the container's termination message. The lines
are described in `fairlead_pod.child`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from fairlead_broker.ballast import find_obstacle
from fairlead_model.session.session_protocol import PAUSE_MAX_MS, STALL_MAX_MS, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE: Final = "FAIRLEAD_SUPERVISOR_FD"
_TEXT_SIZE_MAX: Final = 2048


class SupervisorPipe:
    """Writes lines; the descriptor belongs to this process alone from here on."""

    def __init__(self, descriptor: int) -> None:
        """OSError if nothing is open under that number."""
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def report_fatal(self, reason: str) -> None:
        """Say why this process is about to exit."""
        self._write("fatal " + " ".join(reason.split()))

    def carry_out(
        self,
        fault: Fault,
        duration_ms: int,
        turns: tuple[int, int] = (0, 0),
        directories: Sequence[str] = (),
    ) -> None:
        """Have a fault done to this process; for `kill` nothing comes after this line.

        `directories` are those whose disks are to be full.
        """
        if fault is Fault.SLOW:
            self._write(f"slow {duration_ms} {turns[0]} {turns[1]}")
        elif fault is Fault.FILL:
            for directory in directories:
                self._write(f"fill {duration_ms} {directory}")
        else:
            self._write(f"pause {duration_ms}" if fault is Fault.PAUSE else str(fault))

    def _write(self, line: str) -> None:
        os.write(self._descriptor, line.encode()[:_TEXT_SIZE_MAX] + b"\n")


def open_supervisor_pipe(environment: Mapping[str, str]) -> SupervisorPipe | None:
    """Return the pipe that the environment names, if there is one and it is open."""
    text = environment.get(VARIABLE, "")
    if not text.isdecimal():
        return None
    try:
        return SupervisorPipe(int(text))
    except OSError:
        return None  # The variable was inherited, the pipe was not.


class DrillFaults:
    """Judges and carries out the faults that the controller asks for."""

    def __init__(
        self, pipe: SupervisorPipe | None, *, is_enabled: bool, directories: Sequence[str] = ()
    ) -> None:
        """`directories` are those of the broker's logs."""
        self._pipe = pipe
        self._is_enabled = is_enabled
        self._directories = directories

    def refusal(self, fault: str, duration_ms: int, turns: tuple[int, int] = (0, 0)) -> str:
        """Return why the fault cannot be carried out; empty if it can."""
        if not self._is_enabled:
            return "drills are not enabled on this broker (fairlead.drills.enable=true)"
        if self._pipe is None:
            return "this broker runs without the supervisor that carries out faults"
        if fault not in list(Fault):
            return f"there is no fault {fault[:40]!r}; there are {', '.join(Fault)}"
        lasts = fault in (Fault.PAUSE, Fault.SLOW, Fault.FILL)
        if lasts and not 1 <= duration_ms <= PAUSE_MAX_MS:
            return f"it lasts from 1 to {PAUSE_MAX_MS} ms, not {duration_ms}"
        if fault == Fault.SLOW and not all(1 <= turn <= STALL_MAX_MS for turn in turns):
            return f"a turn lasts from 1 to {STALL_MAX_MS} ms, not {turns[0]} and {turns[1]}"
        if fault == Fault.FILL:
            return next(filter(None, map(find_obstacle, self._directories)), "")
        return ""

    def carry_out(self, fault: str, duration_ms: int, turns: tuple[int, int] = (0, 0)) -> None:
        """Do what was not refused."""
        if self._pipe is not None:
            self._pipe.carry_out(Fault(fault), duration_ms, turns, self._directories)
