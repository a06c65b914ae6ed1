"""Whether a broker was given up because a busy machine gave it no processor.

A live broker that cannot run for the time of its session is silent, and has to be fenced. A test
that says that no live broker is given up means those that could run.
"""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from processor_wait import waited_s

from fairlead_controller.decisions.events import FenceReason
from fairlead_model.session.session_protocol import SESSION_TIMEOUT_MS

SAMPLE_EVERY_S: Final = 0.05
SILENCE_S: Final = SESSION_TIMEOUT_MS / 1000 + 0.5
"""How long before it was noted a silence began, at most."""
STARVED_S: Final = SESSION_TIMEOUT_MS / 1000 / 3
"""Heartbeats come more often: who runs two thirds of a session's time is heard in it."""
LOG_TIME: Final = "%Y-%m-%d %H:%M:%S,%f"
LOG_TIME_SIZE: Final = len("2026-11-30 08:08:56,199")


class StarvationWatch:
    """Notes how long each process waits for a processor, from `with` on."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._samples: dict[int, list[tuple[float, float]]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="starvation watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(SAMPLE_EVERY_S):
            # A process may end between the question who runs and the one for its pid.
            with suppress(RuntimeError, AssertionError):
                for pid in self._pids():
                    # Who asks meanwhile finds no list without a sample.
                    sample = time.time(), waited_s(pid)
                    self._samples.setdefault(pid, []).append(sample)

    def samples(self, pid: int) -> list[tuple[float, float]]:
        """Return what was noted of a process: the time of day, and how long it had waited."""
        return self._samples.get(pid, [])

    def starved_s(self, begin_s: float, end_s: float) -> float:
        """Return the longest that any of the processes waited between two times of day."""
        found = list(self._samples.values())
        return max((_waited(each, begin_s, end_s) for each in found), default=0.0)

    def judged(self, fencings: Iterable[str]) -> list[str]:
        """Return those lines of a controller's log that a lack of processors does not explain."""
        return [line for line in fencings if not self._is_explained(line)]

    def _is_explained(self, line: str) -> bool:
        if FenceReason.SESSION_EXPIRED not in line:
            return False
        noted_s = datetime.strptime(line[:LOG_TIME_SIZE], LOG_TIME).timestamp()
        return self.starved_s(noted_s - SILENCE_S, noted_s) >= STARVED_S


def _waited(samples: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Return how long a process waited, from the sample before a time to that after another."""
    first = max(bisect_right(samples, (begin_s, float("inf"))) - 1, 0)
    last = min(bisect_left(samples, (end_s, 0.0)), len(samples) - 1)
    # 0 is the answer for a process that has just ended.
    return max(0.0, samples[last][1] - samples[first][1])
