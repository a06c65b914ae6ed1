"""`fairlead broker fence` and `unfence`: keep a broker out of service until a person undoes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import INT16_MAX, bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

BY_HAND: Final = "by hand"
"""The reason if the user gives none."""

FENCE_EPILOG = """\b
Examples:
  fairlead broker fence 3
  fairlead broker fence 3 --reason "its disk reports errors"

The broker's leaders move at once, it leaves all in-sync sets, and it gets no new replicas. This
lasts until `fairlead broker unfence 3`, also after a restart and with another controller. Its
process goes on and keeps its replicas up to date. If partitions would then have too few in-sync
replicas, the command names them and exits with 1; then nothing has changed.
"""
UNFENCE_EPILOG = """\b
Examples:
  fairlead broker unfence 3

The broker is in service as soon as it reports that it is ready, and in sync once it has caught up.
"""


@click.command("fence", epilog=FENCE_EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@click.option(
    "--reason", default=BY_HAND, metavar="TEXT", help="A reason; kept and shown with the fence."
)
@data_option
@bootstrap_option
@table_or_json
def fence(*, broker_id: int, reason: str, data: Path, bootstrap: str | None, output: str) -> None:
    """Take a broker out of service, until it is unfenced."""
    if not reason.strip():
        raise click.UsageError("--reason: an empty reason would be no order")
    if len(reason.encode()) > INT16_MAX:
        raise click.UsageError(f"--reason: at most {INT16_MAX} bytes fit")
    _order(data, bootstrap, broker_id, reason.strip())
    if output == "json":
        _print(broker_id, reason.strip())
        return
    click.echo(f"Broker {broker_id} is fenced: it leads nothing, and gets nothing new.")
    click.echo(f"Let it back with:  fairlead broker unfence {broker_id}{cluster_arguments()}")


@click.command("unfence", epilog=UNFENCE_EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@data_option
@bootstrap_option
@table_or_json
def unfence(*, broker_id: int, data: Path, bootstrap: str | None, output: str) -> None:
    """Let a fenced broker be in service again."""
    _order(data, bootstrap, broker_id, None)
    if output == "json":
        _print(broker_id, None)
        return
    click.echo(f"Broker {broker_id} may be in service again, as soon as it is ready.")


def _order(data: Path, bootstrap: str | None, broker_id: int, reason: str | None) -> None:
    from fairlead_cli.broker.drain import order
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_model.configs.broker_configs import BROKER_FENCE

    order(resolve_bootstrap(bootstrap, data), broker_id, BROKER_FENCE, reason)


def _print(broker_id: int, reason: str | None) -> None:
    from fairlead_cli.output import print_json

    print_json({"id": broker_id, "fencedBy": reason})
