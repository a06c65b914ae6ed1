"""Ctrl-C and SIGTERM as a question to ask between records, so that nothing ends in the middle."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from fairlead_cli.output import note

if TYPE_CHECKING:
    from types import FrameType
    from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Inside the block the first signal is only remembered; a second one ends the process.

    Leaving the block normally after a signal ends as the signal would have: Ctrl-C with
    KeyboardInterrupt, SIGTERM with the process.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._restore()
        if self._received is None or kind is not None:
            return
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        os.kill(os.getpid(), self._received)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        self._restore()
        note("Stopping: what was written is being committed. Once more ends it at once.")

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def is_stopped(self) -> bool:
        """Tell whether a signal came."""
        return self._received is not None
