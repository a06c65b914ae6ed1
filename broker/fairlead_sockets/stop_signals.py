"""Which signals ask a server to end: SIGTERM and, unless it was started to ignore it, SIGINT."""

import asyncio
import signal
from collections.abc import Callable


def on_stop_signal(stop: Callable[[], object]) -> None:
    """Have the running loop call `stop` for each signal that asks this process to end.

    A shell lets a command that a script starts with `&` ignore Ctrl-C, which is meant for the
    script and reaches both. SIGTERM is meant for this process, so it always counts.
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGINT, stop)
