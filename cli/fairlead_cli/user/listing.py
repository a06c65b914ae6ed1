"""`fairlead user list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

SUPER_USER: Final = "everything (a super user)"
"""What is shown of a user who is above all rules."""
EPILOG = """\b
Examples:
  fairlead user list
  fairlead user list -o json
"""


@click.command("list", epilog=EPILOG)
@data_option
@bootstrap_option
@table_or_json
def command(data: Path, bootstrap: str | None, output: str) -> None:
    """List users that log in by SCRAM, and what they may do."""
    from fairlead_cli.acl.rule_text import principal_of, resource_text
    from fairlead_cli.client.acls import fetch_rules
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.client.users import fetch_users
    from fairlead_cli.errors import NothingAuthorizedError
    from fairlead_cli.output import note, print_json, print_table

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    users = fetch_users(admin)
    rights: dict[str, list[str]] = {}
    above = frozenset[str]()
    try:
        rules = fetch_rules(admin)
        above = fetch_super_users(admin)
    except NothingAuthorizedError:
        rules = []
        if users:
            note("The brokers authorize nothing: each user may do everything.")
    for rule in rules:
        text = f"{rule.operation.name} {resource_text(rule)}"
        if rule.permission.name == "DENY":
            text = f"not {text}"
        rights.setdefault(rule.principal, []).append(text)
    rows: list[dict[str, Any]] = [
        {
            "name": user.name,
            "mechanisms": user.iterations,
            "acls": rights.get(principal_of(user.name), []),
            "isSuperUser": principal_of(user.name) in above,
        }
        for user in users
    ]
    if output == "json":
        print_json(rows)
    elif users:
        print_table(
            ["NAME", "MECHANISMS", "MAY"],
            [
                [
                    user.name,
                    ", ".join(user.iterations),
                    SUPER_USER if row["isSuperUser"] else ", ".join(row["acls"]),
                ]
                for user, row in zip(users, rows, strict=True)
            ],
        )
    else:
        note("There are no users who log in by SCRAM.")


def fetch_super_users(admin: AdminClient) -> frozenset[str]:
    """Return the principals above all rules; none, with a note, if the user may not read that."""
    from fairlead_cli.client.acls import fetch_authorizer_settings
    from fairlead_cli.errors import CliError
    from fairlead_cli.output import note

    try:
        return fetch_authorizer_settings(admin).super_users
    except CliError as error:
        note(f"Who is a super user is not known: {error.message}")
        return frozenset()
