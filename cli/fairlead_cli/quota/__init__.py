"""`fairlead quota …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "list": Verb("fairlead_cli.quota.listing", "command", "List quotas of clients."),
    "set": Verb("fairlead_cli.quota.set", "command", "Set quotas of a user, client id or address."),
    "remove": Verb("fairlead_cli.quota.remove", "command", "Remove quotas."),
}

EPILOG = """\b
Examples:
  fairlead quota list
  fairlead quota set --user alice producer_byte_rate=1048576
  fairlead quota set --default-user request_percentage=25
  fairlead quota remove --user alice
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def quota() -> None:
    """Limit how much of the cluster clients may use."""
