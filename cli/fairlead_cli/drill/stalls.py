"""Makes processes of this machine slow: they stand still and run in turns, by SIGSTOP and SIGCONT.

In a container process 1 does the same (`fairlead_pod.stalls`), and says what it models.
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
    """The turns: how long a process stands still, and how long it runs then, in milliseconds."""

    stall_ms: int = 200
    run_ms: int = 50


class StallThread:
    """`start`, and `stop` whatever happened; all processes run then."""

    def __init__(self, processes: list[ProcessId], stalls: Stalls) -> None:
        self._processes = processes
        self._stalls = stalls
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill-stalls", daemon=True)

    def start(self) -> None:
        """Begin with a stall; returns once the processes are told to stand still."""
        self._signal_all(signal.SIGSTOP)
        self._thread.start()

    def stop(self) -> None:
        """End the turns, and let all processes run."""
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
