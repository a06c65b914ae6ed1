"""Acts on single processes of a running local cluster, by the pids in its cluster file.

This module does not talk to the supervisor, which notices that a child has ended and restarts it.
All waits have a limit. A process counts as back when the supervisor reports that it serves.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead_cli.advice import cluster_arguments, data_arguments
from fairlead_cli.errors import CliError, InputError
from fairlead_cli.local.cluster_file import read_cluster_file
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.up_command import up_command

if TYPE_CHECKING:
    from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry
    from fairlead_cli.local.process_table import ProcessId

POLL_S = 0.02
PAUSE_TIMEOUT_S = 10.0


def require_cluster(data: Path) -> ClusterFile:
    """Return the local cluster that runs on a data directory; CliError says how to start one."""
    cluster = read_cluster_file(Layout(data).cluster_file)
    if cluster is None:
        raise CliError(
            f"there is no local cluster in {data}",
            hint=f"Start one:\n  {up_command(data)}\nor name another with --data DIR.",
        )
    if not any(entry.is_alive for entry in cluster.entries) and not cluster.is_supervised:
        raise CliError(
            f"the local cluster in {data} is not running",
            hint=f"Start it; its data is still there:\n  {up_command(data, cluster)}",
        )
    return cluster


def find_broker(cluster: ClusterFile, broker_id: int) -> ProcessEntry:
    """Return the entry of a broker; InputError names the existing ones."""
    for entry in cluster.brokers:
        if entry.id == broker_id:
            return entry
    known = ", ".join(str(entry.id) for entry in cluster.brokers)
    raise InputError(f"there is no broker {broker_id}", hint=f"There are {known}.")


def require_process(entry: ProcessEntry) -> ProcessId:
    """Return a live process; CliError if it does not run."""
    if entry.process is None or not entry.process.is_alive:
        raise CliError(
            f"{entry.name} is not running",
            hint=f"The supervisor starts it again by itself:  fairlead status{cluster_arguments()}",
        )
    return entry.process


def state_of_entry(entry: ProcessEntry) -> str:
    """Return the state of a process from the supervisor, unless it is paused or stopped."""
    if not entry.is_alive:
        return "restarting" if entry.state == "restarting" else "stopped"
    return "paused" if entry.process is not None and entry.process.is_paused else entry.state


def send_signal(entry: ProcessEntry, number: signal.Signals) -> ProcessId:
    """Signal a live process; CliError when there is none."""
    process = require_process(entry)
    if not process.send(number):
        raise CliError(f"{entry.name} has just ended")
    return process


def pause_process(entry: ProcessEntry) -> ProcessId:
    """Stop a live process with SIGSTOP, and wait until it has stopped; CliError if it does not.

    The signal takes effect when the process would run next, which a busy machine delays.
    """
    process = send_signal(entry, signal.SIGSTOP)
    deadline_s = time.monotonic() + PAUSE_TIMEOUT_S
    while not process.is_paused:
        if not process.is_alive:
            raise CliError(f"{entry.name} has just ended")
        if time.monotonic() > deadline_s:
            raise CliError(
                f"{entry.name} is not stopped {PAUSE_TIMEOUT_S:.0f} s after SIGSTOP",
                hint="Another process continues it (SIGCONT), or the machine is too busy.",
            )
        time.sleep(POLL_S)
    return process


def require_supervisor(cluster: ClusterFile) -> None:
    """Raise CliError if no supervisor runs that could restart a process."""
    if not cluster.is_supervised:
        data = data_arguments(Path(cluster.data))
        raise CliError(
            "the supervisor of this cluster was killed: nobody would start the broker again",
            hint=f"Stop what it left behind, then start it again:\n  fairlead down{data}\n"
            f"  {up_command(Path(cluster.data), cluster)}",
        )


def wait_until_replaced(data: Path, name: str, old: ProcessId, timeout_s: float) -> float:
    """Wait until the supervisor has replaced a process and it serves; return the seconds."""
    started = time.monotonic()
    while True:
        cluster = read_cluster_file(Layout(data).cluster_file)
        entries = {entry.name: entry for entry in cluster.entries} if cluster else {}
        entry = entries.get(name)
        is_new = entry is not None and entry.is_alive and entry.process != old
        if is_new and entry is not None and entry.state == "running":
            return time.monotonic() - started
        if cluster is None or not cluster.is_supervised:
            raise CliError(
                f"{name} was not started again: the cluster has been stopped meanwhile",
                hint=f"See:  fairlead status{data_arguments(data)}",
            )
        if time.monotonic() - started > timeout_s:
            raise CliError(
                f"{name} does not serve again after {timeout_s:.0f} s",
                hint=f"See what it is doing:  fairlead status{data_arguments(data)}\n"
                f"and the end of {Layout(data).output_file(name)}",
            )
        time.sleep(POLL_S)
