"""`fairlead topic …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "create": Verb("fairlead_cli.topic.create", "command", "Create a topic."),
    "list": Verb("fairlead_cli.topic.listing", "command", "List topics and their health."),
    "describe": Verb(
        "fairlead_cli.topic.describe", "command", "Show partitions, leaders, offsets and settings."
    ),
    "alter": Verb("fairlead_cli.topic.alter", "command", "Add partitions, set or unset settings."),
    "elect": Verb("fairlead_cli.topic.elect", "command", "Let preferred replicas lead again."),
    "delete": Verb("fairlead_cli.topic.delete", "command", "Delete topics and their records."),
}

EPILOG = """\b
Examples:
  fairlead topic create orders --partitions 6 --config retention.ms=86400000
  fairlead topic list -o json
  fairlead topic describe orders
  fairlead topic alter orders --partitions 12 --config max.message.bytes=2097152
  fairlead topic elect orders
  fairlead topic delete orders
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def topic() -> None:
    """Create, list, describe, alter and delete topics; elect their leaders."""
