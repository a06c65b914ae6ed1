"""`fairlead acl create`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.options import bootstrap_option, data_option, require_name
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path


def require_host(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuse a host that no client would ever match (an option's callback)."""
    from fairlead_model.security.acl import host_problem

    if problem := host_problem(value):
        raise click.BadParameter(problem)
    return value


EPILOG = """\b
Examples:
  fairlead acl create --user alice 'WRITE topic:orders'
  fairlead acl create --user bob 'READ topic:orders-*' 'READ group:billing'
  fairlead acl create --user '*' --deny 'ALL topic:salaries'
"""


@click.command("create", epilog=EPILOG)
@click.argument("rights", nargs=-1, required=True, metavar="RIGHT...")
@click.option(
    "--user",
    required=True,
    callback=require_name,
    metavar="NAME",
    help="The user that the rules are for; * is every user.",
)
@click.option(
    "--host",
    default="*",
    show_default=True,
    callback=require_host,
    help="Address from which the rules apply.",
)
@click.option(
    "--deny", is_flag=True, help="Make rules that deny; they override all rules that allow."
)
@data_option
@bootstrap_option
def command(  # noqa: PLR0917
    rights: tuple[str, ...],
    user: str,
    host: str,
    deny: bool,
    data: Path,
    bootstrap: str | None,
) -> None:
    """Add access rules for a user. A rule that exists already is no error.

    A RIGHT is OPERATION[,OPERATION...] TYPE:NAME. Types are topic, group, transactional-id and
    cluster; a name that ends in * is a prefix.
    """
    from fairlead_cli.acl.rule_text import parse_rules, principal_of
    from fairlead_cli.client.acls import create_rules
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_model.security.acl import Permission

    permission = Permission.DENY if deny else Permission.ALLOW
    try:
        rules = parse_rules(rights, principal_of(user), host=host, permission=permission)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="RIGHT") from None
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    create_rules(admin, rules)
    for rule in rules:
        tell(f"Added {rule}.")
