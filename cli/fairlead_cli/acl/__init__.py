"""`fairlead acl …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "list": Verb("fairlead_cli.acl.listing", "command", "List access rules."),
    "create": Verb("fairlead_cli.acl.create", "command", "Add access rules for a user."),
    "delete": Verb("fairlead_cli.acl.delete", "command", "Remove access rules of a user."),
    "test": Verb("fairlead_cli.acl.explain", "command", "Tell what a user may do, and why."),
}

EPILOG = """\b
Examples:
  fairlead acl list --user alice
  fairlead acl create --user alice 'WRITE topic:orders' 'READ,DESCRIBE topic:orders-*'
  fairlead acl delete --user alice 'WRITE topic:orders'
  fairlead acl test --user alice --operation WRITE --topic orders
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def acl() -> None:
    """Manage access rules, and see why a user may or may not do something."""
