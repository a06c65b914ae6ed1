"""`fairlead quota set`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.options import bootstrap_option, data_option, parse_assignments
from fairlead_cli.quota.entity_options import entity_options

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead quota set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
  fairlead quota set --user alice --default-client-id producer_byte_rate=262144
  fairlead quota set --default-user request_percentage=25 controller_mutation_rate=5
  fairlead quota set --ip 10.0.0.7 connection_creation_rate=20
"""


@click.command("set", epilog=EPILOG)
@click.argument("quotas", nargs=-1, required=True, metavar="KEY=VALUE...")
@entity_options
@data_option
@bootstrap_option
def command(quotas: tuple[str, ...], data: Path, bootstrap: str | None, **options: Any) -> None:
    """Set quotas of a user, a client id, both, or an address. Its other quotas stay.

    Keys are producer_byte_rate, consumer_byte_rate (bytes a second), request_percentage (of a
    broker's event loop), controller_mutation_rate (partitions a second), and for an address
    connection_creation_rate (a second).
    """
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.quotas import alter_quotas
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.quota.entity_options import entity_text, number_text, read_entity
    from fairlead_model.security.client_quota import quota_problem

    entity = read_entity(options)
    values: dict[str, float | None] = {}
    for key, text in parse_assignments(quotas, "KEY=VALUE").items():
        try:
            value = float(text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a number", param_hint=key) from None
        if problem := quota_problem(entity, key, value):
            raise click.BadParameter(problem, param_hint=key)
        values[key] = value
    alter_quotas(build_admin(resolve_bootstrap(bootstrap, data)), entity, values)
    said = ", ".join(f"{key}={number_text(value or 0)}" for key, value in values.items())
    click.echo(f"Set for {entity_text(entity)}: {said}.")
