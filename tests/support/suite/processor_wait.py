"""How long processes have waited for a processor: the share of a busy machine in a measurement."""

import os
import time
from collections.abc import Collection

from fairlead_cli.local.process_table import identify


def waited_s(*pids: int) -> float:
    """Return the waiting time of these processes' main threads; 0 if the kernel has no value."""
    found = [identify(pid) for pid in pids]
    return sum(process.waited_s for process in found if process is not None)


class Stopwatch:
    """Measures from its making on, and leaves out the time for which processes had no processor.

    This process and the `alone` ones act one after the other, those `beside` each other at once.
    One that ends meanwhile has not waited: its time cannot be read any more.
    """

    def __init__(self, *alone: int, beside: Collection[int] = ()) -> None:
        self._alone = {pid: waited_s(pid) for pid in (os.getpid(), *alone)}
        self._beside = {pid: waited_s(pid) for pid in beside}
        self._began_s = time.monotonic()

    def count(self, pid: int) -> None:
        """Leave out the waits of one more process, all that it has had."""
        self._alone[pid] = 0.0

    def elapsed_s(self) -> float:
        """Return how long it took, as far as the machine let them run."""
        return time.monotonic() - self._began_s - self.left_out_s()

    def left_out_s(self) -> float:
        """Return how long they have waited for a processor meanwhile."""
        alone = [_more(pid, before) for pid, before in self._alone.items()]
        beside = [_more(pid, before) for pid, before in self._beside.items()]
        return sum(alone) + max(beside, default=0.0)


def _more(pid: int, before_s: float) -> float:
    return max(0.0, waited_s(pid) - before_s)
