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
    except KeyboardInterrupt:
        print("ended before it was done: its processes were stopped", file=sys.stderr)
        return INTERRUPTED
