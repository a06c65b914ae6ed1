"""`fairlead acl delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.options import bootstrap_option, data_option, require_name
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead acl delete --user alice 'WRITE topic:orders'
"""


@click.command("delete", epilog=EPILOG)
@click.argument("rights", nargs=-1, required=True, metavar="RIGHT...")
@click.option(
    "--user",
    required=True,
    callback=require_name,
    metavar="NAME",
    help="The user that the rules are for; * is every user.",
)
@click.option("--host", default="*", show_default=True, help="Address from which the rules apply.")
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
) -> int:
    """Remove exactly these access rules of a user.

    A RIGHT is OPERATION[,OPERATION...] TYPE:NAME. Types are topic, group, transactional-id and
    cluster; a name that ends in * is a prefix.
    """
    from fairlead_cli.acl.rule_text import parse_rules, principal_of
    from fairlead_cli.client.acls import delete_rules
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note
    from fairlead_model.security.acl import Permission

    permission = Permission.DENY if deny else Permission.ALLOW
    try:
        rules = parse_rules(rights, principal_of(user), host=host, permission=permission)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="RIGHT") from None
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    removed = delete_rules(admin, rules)
    for rule in removed:
        tell(f"Removed {rule}.")
    missing = [rule for rule in rules if rule not in removed]
    for rule in missing:
        note(f"There is no rule: {rule}.")
    return 1 if missing else 0
