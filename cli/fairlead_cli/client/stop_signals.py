"""Handle Ctrl-C, SIGTERM and SIGHUP, so that nothing ends in the middle of its work.

A signal that this process was started to ignore (`nohup`, or `&` in a script) stays ignored. When a
terminal closes, its shell and the kernel send SIGHUP twice: the second one does not mean that the
user is in a hurry.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fairlead_cli.output import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType
    from typing import Self

# Signals of systemd, `docker stop`, `timeout`, and of a terminal that closes.
ENDS = (signal.SIGTERM, signal.SIGHUP)
SIGNALS = (signal.SIGINT, *ENDS)


class Handlers:
    """Temporary signal handlers, and the handlers before them."""

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}

    def install(
        self, numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
    ) -> None:
        """Handle those signals that are not ignored."""
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, handler)

    def restore(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def restore_after(self, number: int) -> None:
        """Let the next signal end the process at once, unless it is a second SIGHUP."""
        self.restore()
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def ends_as_interrupts() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP in the block into KeyboardInterrupt, as for Ctrl-C.

    After the block they end the process, as they would have. A second SIGTERM ends it at once.
    """
    received: list[int] = []
    handlers = Handlers()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        handlers.restore_after(number)
        raise KeyboardInterrupt

    handlers.install(ENDS, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        handlers.restore()
        for which in received:
            os.kill(os.getpid(), which)
        raise
    finally:
        handlers.restore()


class StopSignals:
    """In the block, the first signal is only noted; a second one ends the process.

    If the block ends normally after a signal, the signal then takes effect: Ctrl-C raises
    KeyboardInterrupt, SIGTERM and SIGHUP end the process.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._handlers = Handlers()

    def __enter__(self) -> Self:
        self._handlers.install(SIGNALS, self._remember)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._handlers.restore()
        if self._received is None or kind is not None:
            return
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        os.kill(os.getpid(), self._received)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        self._handlers.restore_after(number)
        # A terminal that is closed cannot be written to.
        with suppress(OSError):
            note("Stopping: what was written is being committed. Once more ends it at once.")

    def is_stopped(self) -> bool:
        """Tell whether a signal came."""
        return self._received is not None
