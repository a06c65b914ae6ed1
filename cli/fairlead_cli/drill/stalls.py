"""Slows processes of this machine down: SIGSTOP and SIGCONT stop and continue them in turn.

In a container, process 1 does the same (`fairlead_pod.stalls`); that module says what it models.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_cli.local.process_table import ProcessId


@dataclass(frozen=True, slots=True)
class Stalls:
    """How long a process stops and then runs in each turn, in milliseconds."""

    stall_ms: int = 200
    run_ms: int = 50


class StallThread:
    """Call `start`, and `stop` in any case; after it all processes run."""

    def __init__(self, processes: list[ProcessId], stalls: Stalls) -> None:
        self._processes = processes
        self._stalls = stalls
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill-stalls", daemon=True)

    def start(self) -> None:
        """Begin with a stop; return once all processes have the signal."""
        self._signal_all(signal.SIGSTOP)
        self._thread.start()

    def stop(self) -> None:
        """End the turns, and continue all processes."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._signal_all(signal.SIGCONT)

    def _run(self) -> None:
        turns = (
            (self._stalls.stall_ms, signal.SIGCONT),
            (self._stalls.run_ms, signal.SIGSTOP),
        )
        while True:
            for length_ms, following in turns:
                if self._ending.wait(length_ms / 1000):
                    return
                self._signal_all(following)

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send(number)
