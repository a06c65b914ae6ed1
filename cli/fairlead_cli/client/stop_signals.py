"""Ctrl-C and SIGTERM as something to act upon, so that nothing ends in the middle."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairlead_cli.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What systemd, `docker stop` and `timeout` send, and a terminal that is closed.
ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ends_as_interrupts() -> Iterator[None]:
    """Have SIGTERM and SIGHUP leave the block by KeyboardInterrupt, as Ctrl-C does.

    Behind the block they end the process, as they would have. A second one ends it at once, and
    one that this process was started to ignore (`nohup`) is ignored.
    """
    received: list[int] = []
    previous: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        restore()
        raise KeyboardInterrupt

    for number in ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        for which in received:
            os.kill(os.getpid(), which)
        raise
    finally:
        restore()


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
