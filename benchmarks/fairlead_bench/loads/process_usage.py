"""The resources that processes have used, from /proc: CPU seconds and resident memory."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def read_cpu(pids: Sequence[int]) -> float:
    """Return CPU seconds, user and system, of all threads and reaped children of all of these."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_SECOND


def read_memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Return the resident memory in MB: present (VmRSS) or highest (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024 / 1e6
    raise ValueError(f"/proc/{pid}/status has no {field}")
