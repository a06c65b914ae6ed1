"""`fairlead user delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.options import bootstrap_option, data_option
from fairlead_cli.user.create import check_name

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead user delete shop --yes
"""


@click.command("delete", epilog=EPILOG)
@click.argument("name", metavar="NAME", callback=check_name)
@click.option("--yes", is_flag=True, help="Confirm: the user's clients are disconnected at once.")
@data_option
@bootstrap_option
def command(name: str, yes: bool, data: Path, bootstrap: str | None) -> None:
    """Remove a user: the password, then the access rules for it, then its files."""
    from fairlead_cli.acl.rule_text import principal_of
    from fairlead_cli.client.access import client_settings
    from fairlead_cli.client.acls import delete_rules, fetch_rules
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.client.users import fetch_users, remove_passwords
    from fairlead_cli.errors import CliError, InputError, NothingAuthorizedError
    from fairlead_cli.local.client_files import remove_client_files
    from fairlead_cli.local.layout import Layout
    from fairlead_cli.output import format_count

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    if name == client_settings().get("sasl.username"):
        raise InputError(f"this command logs in as {name}: it would cut itself off")
    found = [user for user in fetch_users(admin) if user.name == name]
    try:
        rules = [rule for rule in fetch_rules(admin) if rule.principal == principal_of(name)]
    except NothingAuthorizedError:
        rules = []
    if not yes:
        raise InputError(
            f"user {name} has {format_count(len(found), 'password')} and "
            f"{format_count(len(rules), 'access rule')}",
            hint=f"To remove all of it:  fairlead user delete {name} --yes{cluster_arguments()}",
        )
    for user in found:
        remove_passwords(admin, user)
    if rules:
        delete_rules(admin, rules)
    try:
        removed = remove_client_files(Layout(data).clients_directory, name)
    except OSError as error:
        raise CliError(
            f"user {name} has no password and no access rules any more, but a file of clients "
            f"cannot be removed: {error.strerror} ({error.filename})",
            hint="It logs nobody in. Remove it yourself.",
        ) from error
    if not (found or rules or removed):
        raise CliError(
            f"there is no user '{name}'",
            hint=f"See who there is:  fairlead user list{cluster_arguments()}",
        )
    click.echo(f"Deleted user {name}, and {format_count(len(rules), 'access rule')}.")
