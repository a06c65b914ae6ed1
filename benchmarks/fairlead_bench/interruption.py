"""A run that is ended from outside: what it has started ends with it."""

import signal
import sys
from collections.abc import Callable
from typing import Final

INTERRUPTED: Final = 130


def run_interruptibly(measure: Callable[[], int]) -> int:
    """Return the exit code of a run. SIGTERM ends it as Ctrl-C does: brokers are stopped first."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return measure()
    except (KeyboardInterrupt, Exception) as error:
        if not is_interrupted(error):
            raise
        print("ended before it was done: its processes were stopped", file=sys.stderr)
        return INTERRUPTED


def is_interrupted(error: BaseException | None) -> bool:
    """Tell whether it is Ctrl-C, or came while what Ctrl-C had ended was stopped.

    The terminal ends loads and clients, too, and that is an error to whoever waits for them.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
