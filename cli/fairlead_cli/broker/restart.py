"""`fairlead broker restart` and `kill`: end a broker, and wait for its restart."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import FiniteRange, data_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMEOUT_S = 60.0

RESTART_EPILOG = """\b
Examples:
  fairlead broker restart 1
  for id in 0 1 2; do fairlead broker restart $id; done
"""
KILL_EPILOG = """\b
Examples:
  fairlead broker kill 1
  fairlead broker kill 1 --no-wait && fairlead status
"""


def timeout_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--timeout-s`, which both verbs have."""
    return click.option(
        "--timeout-s",
        type=FiniteRange(min=0.1),
        default=TIMEOUT_S,
        show_default=True,
        help="How long to wait until it serves again.",
    )(command)


@click.command("restart", epilog=RESTART_EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@timeout_option
@data_option
def restart(broker_id: int, timeout_s: float, data: Path) -> None:
    """Stop a broker cleanly and wait until it serves again.

    Its leaders move to other replicas before it stops, so with replicated topics no client sees an
    error.
    """
    end_and_wait(data, broker_id, signal.SIGTERM, timeout_s)


@click.command("kill", epilog=KILL_EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@click.option("--no-wait", is_flag=True, help="Return at once.")
@timeout_option
@data_option
def kill(broker_id: int, no_wait: bool, timeout_s: float, data: Path) -> None:
    """Kill a broker with SIGKILL and wait until it serves again."""
    end_and_wait(data, broker_id, signal.SIGKILL, 0 if no_wait else timeout_s)


def end_and_wait(data: Path, broker_id: int, number: signal.Signals, timeout_s: float) -> None:
    """Send the signal and wait for the restart; with a time-out of 0, do not wait."""
    from fairlead_cli.local.control import (
        find_broker,
        require_cluster,
        require_supervisor,
        send_signal,
        wait_until_replaced,
    )

    cluster = require_cluster(data)
    require_supervisor(cluster)
    entry = find_broker(cluster, broker_id)
    process = send_signal(entry, number)
    if not timeout_s:
        click.echo(f"Sent {number.name} to broker {broker_id} (pid {process.pid}).")
        return
    seconds = wait_until_replaced(data, entry.name, process, timeout_s)
    click.echo(f"Broker {broker_id} serves again after {seconds:.1f} s.")
