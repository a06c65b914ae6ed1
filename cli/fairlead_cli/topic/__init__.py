"""`fairlead topic …`: one file a verb."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class TopicVerb(NamedTuple):
    """Module under this package, and the line of the group's help."""

    module: str
    summary: str


VERBS = {
    "create": TopicVerb("create", "Create a topic."),
    "list": TopicVerb("listing", "List topics and their health."),
    "describe": TopicVerb("describe", "Show partitions, leaders, offsets and settings."),
    "alter": TopicVerb("alter", "Add partitions, set or unset settings."),
    "elect": TopicVerb("elect", "Let preferred replicas lead again."),
    "delete": TopicVerb("delete", "Delete topics and their records."),
}


class TopicGroup(click.Group):
    """Imports a verb when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command = import_module(f"fairlead_cli.topic.{verb.module}").command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])


EPILOG = """\b
Examples:
  fairlead topic create orders --partitions 6 --config retention.ms=86400000
  fairlead topic list -o json
  fairlead topic describe orders
  fairlead topic alter orders --partitions 12 --config max.message.bytes=2097152
  fairlead topic elect orders
  fairlead topic delete orders
"""


@click.group(cls=TopicGroup, epilog=EPILOG)
def topic() -> None:
    """Create, list, describe, alter and delete topics; elect their leaders."""
