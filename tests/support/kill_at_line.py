"""Run a script and kill it with SIGKILL when a given line of it is reached for the nth time.

    python kill_at_line.py LINE HITS SCRIPT [ARGUMENTS]

The script runs as it would by itself. The process is gone before the line is executed, without a
last word, as after a power cut or the kernel's out-of-memory killer.
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Trace = Callable[[FrameType, str, Any], Any]


def lines_of(script: Path, functions: set[str]) -> list[int]:
    """Every line of these functions that holds code, nested functions only if they are named."""
    found: set[int] = set()

    def search(code: CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                if constant.co_name in functions:
                    lines = {line for _, _, line in constant.co_lines() if line is not None}
                    found.update(lines - {constant.co_firstlineno})
                search(constant)

    search(compile(script.read_text(), str(script), "exec"))
    return sorted(found)


def make_trace(script: str, line: int, hits: int) -> Trace:
    """The killer: counts down the hits."""
    left = hits

    def trace(frame: FrameType, event: str, _argument: Any) -> Trace | None:
        nonlocal left
        if frame.f_code.co_filename != script:
            return None
        if event == "line" and frame.f_lineno == line:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


if __name__ == "__main__":
    chosen_line, chosen_hits, path, *rest = sys.argv[1:]
    sys.argv = [path, *rest]
    sys.settrace(make_trace(path, int(chosen_line), int(chosen_hits)))
    runpy.run_path(path, run_name="__main__")
