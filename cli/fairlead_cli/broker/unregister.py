"""`fairlead broker unregister`: remove a broker that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from fairlead_cli.errors import CliError
from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import INT32_MAX, bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

UNREGISTER_VERSION: Final = 0

EPILOG = """\b
Examples:
  fairlead broker drain 3 --wait          then stop the broker for good
  fairlead broker unregister 3
  fairlead broker unregister 3 -o json

The broker has to be out of service and to have no replicas: drain it, then stop it. A broker that
is dead can be drained, too, as long as others have its partitions. If the broker cannot be
unregistered, the command says why and exits with 1. A broker that is not registered is no error. A
broker that is started again joins as a new broker.
"""


@click.command("unregister", epilog=EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(0, INT32_MAX), shell_complete=complete_brokers
)
@data_option
@bootstrap_option
@table_or_json
def command(*, broker_id: int, data: Path, bootstrap: str | None, output: str) -> None:
    """Remove the registration and the configs of a broker that is gone for good."""
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import print_json

    was_registered = unregister(resolve_bootstrap(bootstrap, data), broker_id)
    if output == "json":
        print_json({"id": broker_id, "wasRegistered": was_registered})
    elif was_registered:
        click.echo(f"Broker {broker_id} is no longer registered.")
    else:
        click.echo(f"Broker {broker_id} is not registered.")


def unregister(addresses: str, broker_id: int) -> bool:
    """Ask any broker; tell whether the broker was registered."""
    from fairlead_cli.client.wire_call import call_first
    from fairlead_cli.wire_exchange import name_error
    from fairlead_wire.errors import ErrorCode
    from fairlead_wire.messages.unregister_broker import UnregisterBrokerRequest

    reply = call_first(addresses, UnregisterBrokerRequest(broker_id), UNREGISTER_VERSION)
    if reply.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        return False
    if reply.error_code:
        raise CliError(reply.error_message or name_error(reply.error_code))
    return True
