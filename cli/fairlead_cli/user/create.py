"""`fairlead user create`."""

from __future__ import annotations

import re
import secrets
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.options import bootstrap_option, data_option
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from fairlead_cli.local.client_files import ClientAccess

EPILOG = """\b
Examples:
  fairlead user create shop --acl 'WRITE topic:orders'
  fairlead user create billing --acl 'READ topic:orders-*' --acl 'READ group:billing'
  fairlead user create shop --password-stdin < password.txt
"""

PASSWORD_BYTES: Final = 24
PASSWORD_LENGTH_MAX: Final = 1_000
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,127}")


def check_name(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> str:
    """Refuse a name that cannot be a file's name, too (an argument's callback)."""
    if not _NAME.fullmatch(value):
        raise click.BadParameter(
            "files are named after the user: letters, digits and . _ @ - only, 128 at most"
        )
    return str(value)


@click.command("create", epilog=EPILOG)
@click.argument("name", metavar="NAME", callback=check_name)
@click.option(
    "--acl",
    "rights",
    multiple=True,
    metavar="RIGHT",
    help="What the user may do, as 'OPERATION[,OPERATION...] TYPE:NAME'. May be repeated.",
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from standard input, one line, instead of generating one.",
)
@data_option
@bootstrap_option
def command(
    name: str,
    rights: tuple[str, ...],
    password_stdin: bool,
    data: Path,
    bootstrap: str | None,
) -> None:
    """Create a user that logs in by SCRAM-SHA-512, and files with which clients log in.

    DATA/clients/NAME.properties is for Java's clients, DATA/clients/NAME.librdkafka for others,
    DATA/clients/NAME.curl for curl -K and the HTTP API.
    """
    from fairlead_cli.acl.rule_text import parse_rules, principal_of
    from fairlead_cli.client.acls import create_rules
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.client.users import fetch_users, set_password, wait_until_known
    from fairlead_cli.errors import CliError
    from fairlead_cli.local.client_files import ensure_directory, write_client_files
    from fairlead_cli.local.layout import Layout
    from fairlead_model.security.acl import Permission

    try:
        rules = parse_rules(rights, principal_of(name), host="*", permission=Permission.ALLOW)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--acl") from None
    password = _read_password() if password_stdin else secrets.token_urlsafe(PASSWORD_BYTES)
    addresses = resolve_bootstrap(bootstrap, data)
    access = _access(addresses, name, password)
    admin = build_admin(addresses)
    if any(user.name == name for user in fetch_users(admin)):
        raise CliError(
            f"there is a user '{name}' already",
            hint=f"Remove it first:  fairlead user delete {name} --yes{cluster_arguments()}",
        )
    ensure_directory(Layout(data).clients_directory)
    # Rights first: once the password holds, the user may do all that was asked for.
    if rules:
        create_rules(admin, rules)
    set_password(admin, name, password)
    # Before anything else can fail: the password is only in these files.
    try:
        paths = write_client_files(Layout(data).clients_directory, access)
    except OSError as error:
        raise CliError(
            f"user '{name}' is made, but nobody knows the password: a file of clients cannot be "
            f"written: {error.strerror}",
            hint=f"Remove the user, and try again:  fairlead user delete {name} --yes"
            f"{cluster_arguments()}",
        ) from error
    wait_until_known(admin, name)
    tell(f"Created user {name}, who logs in with {paths.java} or {paths.librdkafka}.")
    if paths.curl.exists():
        tell(f"By HTTP:  curl -K {shlex.quote(str(paths.curl))} …")
    for rule in rules:
        tell(f"Added {rule}.")


def _access(addresses: str, name: str, password: str) -> ClientAccess:
    """Return how the new user connects: as this command does, with another name."""
    from fairlead_cli.client.access import client_settings, is_tls
    from fairlead_cli.errors import CliError
    from fairlead_cli.local.client_files import ClientAccess

    authority = client_settings().get("ssl.ca.location")
    if not is_tls() or authority is None:
        raise CliError(
            "the cluster does not ask clients who they are, or --client-config does not say how",
            hint="Start a local one with  fairlead up --secure  or name a file of librdkafka's "
            "settings with security.protocol=sasl_ssl and ssl.ca.location.",
        )
    return ClientAccess(bootstrap=addresses, user=name, password=password, ca=Path(authority))


def _read_password() -> str:
    line = sys.stdin.readline(PASSWORD_LENGTH_MAX + 2).rstrip("\r\n")
    if not line or len(line) > PASSWORD_LENGTH_MAX or not line.isprintable():
        raise click.BadParameter(
            f"a password is one line of 1 to {PASSWORD_LENGTH_MAX} printable characters",
            param_hint="--password-stdin",
        )
    return line
