"""`fairlead down`: stop the cluster of a data directory, brokers first, and keep the data."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry, read_cluster_file
from fairlead_cli.local.layout import Layout
from fairlead_cli.options import FiniteRange, data_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLL_S = 0.05
KILL_TIMEOUT_S = 5.0

EPILOG = """\b
Examples:
  fairlead down
  fairlead down --data /tmp/one
  fairlead down --timeout-s 5          kill what has not stopped after five seconds
"""


@click.command(epilog=EPILOG)
@data_option
@click.option(
    "--timeout-s",
    type=FiniteRange(min=0),
    default=60.0,
    show_default=True,
    help=(
        "How long a process may take to stop; then it is killed, and recovers its logs at the "
        "next start."
    ),
)
def down(data: Path, timeout_s: float) -> None:
    """Stop a local cluster; its data stays.

    Brokers stop first and write everything to disk, then the controller. It also cleans up after
    a supervisor that was killed.
    """
    layout = Layout(data)
    cluster = read_cluster_file(layout.cluster_file)
    if cluster is None:
        raise CliError(
            f"there is no cluster in {data}",
            hint="Name its data directory with --data DIR.",
        )
    if cluster.supervisor is not None and cluster.supervisor.send(signal.SIGTERM):
        supervisor = cluster.supervisor
        supervisor.send(signal.SIGCONT)  # If Ctrl-Z has paused it, it would not handle SIGTERM.
        if not wait_until(lambda: not supervisor.is_alive, timeout_s):
            click.echo("Still stopping; killing what is left.", err=True)
            supervisor.send(signal.SIGKILL)
            stop_processes(read_cluster_file(layout.cluster_file) or cluster, timeout_s=0)
        click.echo(f"Stopped. The data stays in {data}.")
    elif any(entry.is_alive for entry in cluster.entries):
        click.echo("The supervisor is gone; stopping what it left behind.", err=True)
        stop_processes(cluster, timeout_s=timeout_s)
        click.echo(f"Stopped. The data stays in {data}.")
    else:
        click.echo(f"The cluster in {data} is not running.")


def stop_processes(cluster: ClusterFile, *, timeout_s: float) -> None:
    """Stop the processes without a supervisor: brokers first, then the controller."""
    stop_group(cluster.brokers, timeout_s=timeout_s)
    stop_group([cluster.controller], timeout_s=timeout_s)
    if cluster.proxy is not None:
        stop_group([cluster.proxy], timeout_s=timeout_s)


def stop_group(group: list[ProcessEntry], *, timeout_s: float) -> None:
    """Send SIGTERM, wait, then send SIGKILL."""

    def is_gone() -> bool:
        return not any(entry.is_alive for entry in group)

    for entry in group:
        signal_entry(entry, signal.SIGTERM)
        signal_entry(entry, signal.SIGCONT)  # A paused process would not handle the signal.
    if wait_until(is_gone, timeout_s):
        return
    for entry in group:
        if signal_entry(entry, signal.SIGKILL):
            click.echo(f"{entry.name} did not stop and was killed.", err=True)
    wait_until(is_gone, KILL_TIMEOUT_S)


def signal_entry(entry: ProcessEntry, number: signal.Signals) -> bool:
    """Send a signal; tell whether the process exists."""
    return entry.process is not None and entry.process.send(number)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Tell whether the condition became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
