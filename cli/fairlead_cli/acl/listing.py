"""`fairlead acl list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead acl list
  fairlead acl list --user alice -o json
"""


@click.command("list", epilog=EPILOG)
@click.option("--user", metavar="NAME", help="Only rules for this user.")
@data_option
@bootstrap_option
@table_or_json
def command(user: str | None, data: Path, bootstrap: str | None, output: str) -> None:
    """List access rules."""
    from fairlead_cli.acl.rule_text import principal_of, resource_text
    from fairlead_cli.client.acls import fetch_rules
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note, print_json, print_table

    wanted = None if user is None else principal_of(user)
    rules = [
        rule
        for rule in fetch_rules(build_admin(resolve_bootstrap(bootstrap, data)))
        if wanted in (None, rule.principal)
    ]
    rows = [
        {
            "permission": rule.permission.name,
            "principal": rule.principal,
            "host": rule.host,
            "operation": rule.operation.name,
            "resource": resource_text(rule),
        }
        for rule in rules
    ]
    if output == "json":
        print_json(rows)
    elif rows:
        print_table([name.upper() for name in rows[0]], [list(row.values()) for row in rows])
    else:
        note("There are no access rules." if wanted is None else f"No rule is for {wanted}.")
