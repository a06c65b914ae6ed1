"""`fairlead quota list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead quota list
  fairlead quota list -o json
"""


@click.command("list", epilog=EPILOG)
@data_option
@bootstrap_option
@table_or_json
def command(data: Path, bootstrap: str | None, output: str) -> None:
    """List quotas of clients. In JSON a name that is null is the default of its type."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.quotas import fetch_quotas
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note, print_json, print_table
    from fairlead_cli.quota.entity_options import entity_text, number_text

    known = fetch_quotas(build_admin(resolve_bootstrap(bootstrap, data)))
    if output == "json":
        print_json([{"entity": dict(entity), "quotas": quotas} for entity, quotas in known.items()])
    elif known:
        rows = [
            [entity_text(entity), key, number_text(value)]
            for entity, quotas in known.items()
            for key, value in quotas.items()
        ]
        print_table(["FOR", "QUOTA", "VALUE"], rows)
    else:
        note("There are no quotas.")
