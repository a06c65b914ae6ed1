"""`fairlead acl test`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.options import bootstrap_option, data_option, require_name, table_or_json
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_model.security.acl_explanation import Explanation

EPILOG = """\b
Examples:
  fairlead acl test --user alice --operation WRITE --topic orders
  fairlead acl test --user bob --operation READ --group billing --host 10.0.0.7
  fairlead acl test --user bob --operation ALTER --cluster -o json

Exit codes: 0 allowed, 1 denied.
"""


@click.command("test", epilog=EPILOG)
@click.option("--user", required=True, callback=require_name, metavar="NAME", help="The user.")
@click.option("--operation", required=True, metavar="NAME", help="The operation: READ, WRITE, ….")
@click.option("--topic", metavar="NAME", help="A topic.")
@click.option("--group", metavar="ID", help="A consumer group.")
@click.option("--transactional-id", metavar="ID", help="A transactional id.")
@click.option("--cluster", is_flag=True, help="The cluster.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the user.")
@data_option
@bootstrap_option
@table_or_json
def command(  # noqa: PLR0917
    user: str,
    operation: str,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    host: str,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> int:
    """Show whether a user may do something, and the effect of each rule."""
    from fairlead_cli.acl.rule_text import parse_operation, principal_of
    from fairlead_cli.client.acls import fetch_authorizer_settings, fetch_rules
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_model.security.acl import CLUSTER_NAME, ResourceType
    from fairlead_model.security.acl_explanation import explain

    named = [
        (ResourceType.TOPIC, topic),
        (ResourceType.GROUP, group),
        (ResourceType.TRANSACTIONAL_ID, transactional_id),
        (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
    ]
    asked = [(kind, name) for kind, name in named if name]
    if len(asked) != 1:
        raise click.UsageError("name one of --topic, --group, --transactional-id and --cluster")
    try:
        wanted = parse_operation(operation)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--operation") from None
    ((kind, name),) = asked
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    settings = fetch_authorizer_settings(admin)
    explanation = explain(
        fetch_rules(admin),
        (principal_of(user), host, wanted, kind, name),
        super_users=settings.super_users,
        allows_without_rules=settings.allows_without_rules,
    )
    if output == "json":
        _print_json(explanation)
    else:
        word = "allowed" if explanation.is_allowed else "denied"
        what = f"{wanted.name} {kind.name} {name}"
        tell(f"{principal_of(user)} is {word} {what} from {host}:")
        for rule, verdict in explanation.rules:
            tell(f"  {rule}  {verdict}")
        tell(f"  {explanation.reason}")
    return 0 if explanation.is_allowed else 1


def _print_json(explanation: Explanation) -> None:
    from fairlead_cli.output import print_json

    print_json(
        {
            "allowed": explanation.is_allowed,
            "reason": explanation.reason,
            "rules": [
                {"rule": str(rule), "verdict": verdict} for rule, verdict in explanation.rules
            ],
        }
    )
