"""Run a script and kill it with SIGKILL when a given line of it is reached for the nth time.

    python kill_at_line.py LINE HITS SCRIPT [ARGUMENTS]

The script runs as it would by itself. The process ends before the line is executed, without any
cleanup, as after a power cut or a kill by the kernel's out-of-memory killer.
"""

import json
import os
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

Trace = Callable[[FrameType, str, Any], Any]


def make_trace(script: str, on_line: Callable[[int], None]) -> Trace:
    """Calls `on_line` before each line of the script, in the main thread."""

    def trace(frame: FrameType, event: str, _argument: Any) -> Trace | None:
        if frame.f_code.co_filename != script:
            return None
        if event == "line":
            on_line(frame.f_lineno)
        return trace

    return trace


def main() -> None:
    """Run a script. With line 0, kill nothing and print how often each line was reached."""
    line, hits, path, *rest = sys.argv[1:]
    reached: Counter[int] = Counter()

    def on_line(number: int) -> None:
        reached[number] += 1
        if number == int(line) and reached[number] == int(hits):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.argv = [path, *rest]
    sys.settrace(make_trace(path, on_line))
    runpy.run_path(path, run_name="__main__")
    sys.settrace(None)
    if line == "0":
        print(json.dumps(reached))


if __name__ == "__main__":
    main()
