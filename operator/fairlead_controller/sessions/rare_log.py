"""Warnings that any peer can cause, at a bounded rate: a flood must not fill the disk."""

import logging
import time
from collections.abc import Callable
from typing import Final

LINES_PER_WINDOW: Final = 20
WINDOW_S: Final = 10.0


class RareLog:
    """Logs some lines of each kind per window; the next window logs how many were left out."""

    def __init__(
        self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._began_s = float("-inf")
        self._counts: dict[str, int] = {}

    def note(self, kind: str, message: str, *arguments: object) -> None:
        """Log a line, unless too many of its kind were logged in this window."""
        now_s = self._clock()
        if now_s - self._began_s >= WINDOW_S:
            self._say_left_out()
            self._counts.clear()
            self._began_s = now_s
        count = self._counts.get(kind, 0) + 1
        self._counts[kind] = count
        if count <= LINES_PER_WINDOW:
            self._logger.warning(message, *arguments)

    def _say_left_out(self) -> None:
        for kind, count in self._counts.items():
            if count > LINES_PER_WINDOW:
                self._logger.warning(
                    "%s: %d more such lines were left out", kind, count - LINES_PER_WINDOW
                )
