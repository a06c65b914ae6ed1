"""A run that is interrupted: the processes that it has started end with it."""

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
    """Tell whether an error is Ctrl-C, or occurred while the run was stopping after Ctrl-C.

    The terminal also ends loads and clients, and the code that waits for them gets an error.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
