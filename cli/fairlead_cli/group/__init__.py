"""`fairlead group …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "list": Verb(
        "fairlead_cli.group.listing", "command", "List consumer groups, their states and members."
    ),
    "describe": Verb(
        "fairlead_cli.group.describe", "command", "Show state, members, offsets and lag."
    ),
    "reset": Verb(
        "fairlead_cli.group.reset", "command", "Move a group's offsets, back or forward."
    ),
    "delete": Verb(
        "fairlead_cli.group.delete", "command", "Delete groups, or their offsets of a topic."
    ),
    "import": Verb(
        "fairlead_cli.group.import_positions", "command", "Take positions out of ZooKeeper."
    ),
    "export": Verb(
        "fairlead_cli.group.export_positions", "command", "Put positions into ZooKeeper."
    ),
}

EPILOG = """\b
Examples:
  fairlead group list --lag
  fairlead group describe billing
  fairlead group reset billing --topic orders --to-earliest
  fairlead group reset billing --topic orders:0,2 --shift-by -100 --execute
  fairlead group delete billing
  fairlead group import --zookeeper zk1:2181/kafka billing --dry-run
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def group() -> None:
    """Show consumer groups, set their offsets, delete them, import them from ZooKeeper."""
