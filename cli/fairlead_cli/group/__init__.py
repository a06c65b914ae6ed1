"""`fairlead group …`: one file a verb."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class GroupVerb(NamedTuple):
    """Module under this package, and the line of the group's help."""

    module: str
    summary: str


VERBS = {
    "list": GroupVerb("listing", "List consumer groups, their states and members."),
    "describe": GroupVerb("describe", "Show state, members, offsets and lag."),
    "reset": GroupVerb("reset", "Move a group's offsets, back or forward."),
    "delete": GroupVerb("delete", "Delete groups, or their offsets of a topic."),
}


class VerbsOfGroup(click.Group):
    """Imports a verb when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command = import_module(f"fairlead_cli.group.{verb.module}").command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])


EPILOG = """\b
Examples:
  fairlead group list --lag
  fairlead group describe billing
  fairlead group reset billing --topic orders --to-earliest
  fairlead group reset billing --topic orders:0,2 --shift-by -100 --execute
  fairlead group delete billing
"""


@click.group(cls=VerbsOfGroup, epilog=EPILOG)
def group() -> None:
    """Look at consumer groups, move their offsets, delete them."""
