"""`fairlead txn …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "list": Verb("fairlead_cli.txn.listing", "command", "List transactional ids and their states."),
    "describe": Verb(
        "fairlead_cli.txn.describe", "command", "Show producer, age and partitions of an id."
    ),
    "find-hanging": Verb(
        "fairlead_cli.txn.find_hanging", "command", "Find transactions that nobody will end."
    ),
    "abort": Verb(
        "fairlead_cli.txn.abort", "command", "Abort an id's transaction, or a hanging one."
    ),
}

EPILOG = """\b
Examples:
  fairlead txn list --state Ongoing
  fairlead txn describe billing-7
  fairlead txn find-hanging --topic orders
  fairlead txn abort billing-7
  fairlead txn abort --topic orders:3 --start-offset 1200
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def txn() -> None:
    """Show transactions, find those that block readers, end them."""
