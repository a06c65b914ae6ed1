"""Questions about processes of this machine, answered from /proc.

A pid alone proves nothing, because pids are reused: a process is known by pid *and* start time.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    import signal

PROC = Path("/proc")
STATE_FIELD = 0
START_TIME_FIELD = 19
STATE_PAUSED = "T"
SCHEDSTAT_WAITED_FIELD = 1
TCP_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, safe against reuse of its pid. `start_time` is in clock ticks since boot."""

    pid: int
    start_time: int

    @property
    def is_alive(self) -> bool:
        """Zombies count as dead: they hold nothing any more."""
        return read_start_time(self.pid) == self.start_time

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped by SIGSTOP and waits for SIGCONT."""
        fields = read_stat(self.pid)
        return fields is not None and self.is_alive and fields[STATE_FIELD] == STATE_PAUSED

    @property
    def waited_s(self) -> float:
        """Return how long its main thread was ready to run and had no processor.

        It is 0 if the kernel does not tell (CONFIG_SCHED_INFO), and when the process is gone.
        """
        try:
            fields = (PROC / str(self.pid) / "schedstat").read_text().split()
        except OSError:
            return 0.0
        return int(fields[SCHEDSTAT_WAITED_FIELD]) / 1e9

    def send(self, signal_number: signal.Signals) -> bool:
        """Signal the process if it is still the same one; says whether it was."""
        if not self.is_alive:
            return False
        try:
            os.kill(self.pid, signal_number)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            owner = find_owner(self.pid)
            raise CliError(
                f"pid {self.pid} belongs to {owner or 'another user'}: it may not be signalled",
                hint="Run the command as the user who started the cluster.",
            ) from error
        return True


def find_owner(pid: int) -> str | None:
    """Name of the user that a process runs as."""
    try:
        return (PROC / str(pid)).owner()
    except (OSError, KeyError):
        return None


def read_stat(pid: int) -> list[str] | None:
    """Return fields of /proc/PID/stat behind the command, or None when there is no such process."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command is in parentheses and may itself contain any character.
    return stat[stat.rindex(")") + 1 :].split()


def read_start_time(pid: int) -> int | None:
    """Start time of a live process, or None when there is none."""
    fields = read_stat(pid)
    if fields is None or fields[STATE_FIELD] in ("Z", "X"):
        return None
    return int(fields[START_TIME_FIELD])


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this pid now."""
    start_time = read_start_time(pid)
    return None if start_time is None else ProcessId(pid, start_time)


def read_command_line(pid: int) -> list[str]:
    """Return arguments of a process; empty when it is gone or not ours to look at."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def is_port_free(host: str, port: int) -> bool:
    """Whether a server could bind it now. SO_REUSEADDR as servers use it: TIME_WAIT is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def is_own_address(host: str) -> bool:
    """Whether a server of this machine can be at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError as error:
        # No such address, or a family that this machine does without.
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return False
        raise
    return True


def find_port_holder(port: int) -> int | None:
    """Return pid of the process that listens on a TCP port, if we may see it."""
    inodes = set[str]()
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == TCP_LISTEN and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for directory in PROC.iterdir():
        if directory.name.isdecimal() and holds_any(directory / "fd", inodes):
            return int(directory.name)
    return None


def holds_any(descriptors: Path, inodes: set[str]) -> bool:
    """Whether a process has one of these sockets open. Other users' processes cannot be read."""
    try:
        names = os.listdir(descriptors)  # noqa: PTH208 (names only: no Path for each)
    except OSError:
        return False
    for name in names:
        # One that closes meanwhile says nothing about the others.
        with suppress(OSError):
            if os.readlink(f"{descriptors}/{name}") in inodes:  # noqa: PTH115 (a hundred times a ms)
                return True
    return False
