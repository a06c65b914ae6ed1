"""Processes that are started to ignore Ctrl-C, as by a script's `&`, or with `nohup`."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """Let the processes ignore SIGINT that are started in this block."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignores(pid: int, number: signal.Signals) -> bool:
    """Tell whether a process ignores a signal now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    raise AssertionError("the kernel does not say what it ignores")
