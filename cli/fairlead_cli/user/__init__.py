"""`fairlead user …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "create": Verb("fairlead_cli.user.create", "command", "Make a user and the files to log in."),
    "list": Verb("fairlead_cli.user.listing", "command", "List users who log in by SCRAM."),
    "delete": Verb("fairlead_cli.user.delete", "command", "Remove a user, its rules and files."),
}

EPILOG = """\b
Examples:
  fairlead user create shop --acl 'WRITE topic:orders'
  fairlead user list
  fairlead user delete shop --yes
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def user() -> None:
    """Create users of a secure cluster, and files with which their clients log in."""
