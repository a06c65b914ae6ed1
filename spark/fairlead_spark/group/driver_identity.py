"""The driver that a process belongs to, unique over all machines.

Spark starts a process for each stream that a driver reads, as a child of the driver's JVM. So all
processes of a driver have the JVM in common: its process id and start time, which differ between
containers of one machine, and the machine's boot id, which differs between machines.
"""

import hashlib
import os
import socket
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# Fields of /proc/PID/stat after the name (which may contain blanks), from the third on; the start
# time is the 22nd (proc_pid_stat(5)).
_START_TIME: Final = 22 - 3
_DIGITS: Final = 16


def read_driver() -> str:
    """Return a short name of the driver that this process belongs to."""
    parent = os.getppid()
    facts = f"{_read_boot()}:{parent}:{_read_start(parent)}"
    return hashlib.sha256(facts.encode()).hexdigest()[:_DIGITS]


def is_alive(process: int) -> bool:
    """Tell whether a process of this driver still runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read_boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        # Not Linux.
        return socket.gethostname()


def _read_start(process: int) -> str:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_TIME]
