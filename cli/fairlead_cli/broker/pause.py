"""`fairlead broker pause` and `resume`: stop a broker's process without ending it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import data_option

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead broker pause 1 && sleep 5 && fairlead broker resume 1
"""


@click.command("pause", epilog=EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@data_option
def pause(broker_id: int, data: Path) -> None:
    """Freeze a broker with SIGSTOP: its connections stay, it answers nothing.

    After the session timeout the controller moves its leaders. `fairlead broker resume ID` lets it
    go on; `fairlead down` does too.
    """
    from fairlead_cli.local.control import find_broker, pause_process, require_cluster

    process = pause_process(find_broker(require_cluster(data), broker_id))
    click.echo(f"Paused broker {broker_id} (pid {process.pid}).")
    click.echo(f"Let it go on with:  fairlead broker resume {broker_id}{cluster_arguments()}")


@click.command("resume", epilog=EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@data_option
def resume(broker_id: int, data: Path) -> None:
    """Let a paused broker go on."""
    from fairlead_cli.local.control import find_broker, require_cluster, send_signal

    process = send_signal(find_broker(require_cluster(data), broker_id), signal.SIGCONT)
    click.echo(f"Broker {broker_id} (pid {process.pid}) goes on.")
