"""Information about processes of this machine, from /proc.

A pid alone proves nothing, because pids are reused: pid *and* start time identify a process.
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
        """Whether the process lives; a zombie does not, because it has no resources any more."""
        return read_start_time(self.pid) == self.start_time

    @property
    def is_paused(self) -> bool:
        """Whether SIGSTOP has stopped it, so that it waits for SIGCONT."""
        fields = read_stat(self.pid)
        return fields is not None and self.is_alive and fields[STATE_FIELD] == STATE_PAUSED

    @property
    def waited_s(self) -> float:
        """Return how long its main thread was ready to run but had no processor.

        0 if the kernel does not report it (CONFIG_SCHED_INFO), and if the process is gone.
        """
        try:
            fields = (PROC / str(self.pid) / "schedstat").read_text().split()
        except OSError:
            return 0.0
        return int(fields[SCHEDSTAT_WAITED_FIELD]) / 1e9

    def send(self, signal_number: signal.Signals) -> bool:
        """Signal the process if it is still the same one; tell whether it was."""
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
    """Return the name of the user of a process."""
    try:
        return (PROC / str(pid)).owner()
    except (OSError, KeyError):
        return None


def read_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command; None if there is no such process."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command is in parentheses and may itself contain any character.
    return stat[stat.rindex(")") + 1 :].split()


def read_start_time(pid: int) -> int | None:
    """Return the start time of a live process; None if there is none."""
    fields = read_stat(pid)
    if fields is None or fields[STATE_FIELD] in ("Z", "X"):
        return None
    return int(fields[START_TIME_FIELD])


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this pid now."""
    start_time = read_start_time(pid)
    return None if start_time is None else ProcessId(pid, start_time)


def read_command_line(pid: int) -> list[str]:
    """Return the arguments of a process; empty if it is gone or another user's."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def is_port_free(host: str, port: int) -> bool:
    """Tell whether a server could bind the port now (with SO_REUSEADDR: TIME_WAIT is free)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def is_own_address(host: str) -> bool:
    """Tell whether a server of this machine can use an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError as error:
        # There is no such address, or this machine does not have the address family.
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return False
        raise
    return True


def find_port_holder(port: int) -> int | None:
    """Return the pid of the process that listens on a TCP port, if it is visible."""
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
    """Tell whether a process has one of these sockets. Other users' processes are not readable."""
    try:
        names = os.listdir(descriptors)  # noqa: PTH208 (names only: no Path for each)
    except OSError:
        return False
    for name in names:
        # A descriptor that is closed meanwhile says nothing about the others.
        with suppress(OSError):
            if os.readlink(f"{descriptors}/{name}") in inodes:  # noqa: PTH115 (a hundred times a ms)
                return True
    return False
