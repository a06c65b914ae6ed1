"""`fairlead features …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "describe": Verb(
        "fairlead_cli.features.describe", "command", "Show levels in force, and who supports more."
    ),
    "upgrade": Verb("fairlead_cli.features.update", "upgrade", "Raise feature levels."),
    "downgrade": Verb("fairlead_cli.features.update", "downgrade", "Lower levels that may fall."),
}

EPILOG = """\b
Examples:
  fairlead features describe
  fairlead features upgrade
  fairlead features upgrade group.version=1
  fairlead features downgrade transaction.version=1

The last step of an upgrade to another release, and the only one without a way back.
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def features() -> None:
    """Show and raise the feature levels of a cluster, which all its brokers support."""
