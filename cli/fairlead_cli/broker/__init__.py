"""`fairlead broker …`: single brokers of a local cluster, one file a verb."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class BrokerVerb(NamedTuple):
    """Module under this package, its command, and the line of the group's help."""

    module: str
    attribute: str
    summary: str


VERBS = {
    "list": BrokerVerb("listing", "command", "List brokers: state, leaders, replicas."),
    "restart": BrokerVerb("restart", "restart", "Stop a broker cleanly and start it again."),
    "kill": BrokerVerb("restart", "kill", "Kill a broker (SIGKILL); it is started again."),
    "pause": BrokerVerb("pause", "pause", "Freeze a broker (SIGSTOP) until `resume`."),
    "resume": BrokerVerb("pause", "resume", "Let a paused broker go on (SIGCONT)."),
}


class BrokerGroup(click.Group):
    """Imports a verb when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command = getattr(import_module(f"fairlead_cli.broker.{verb.module}"), verb.attribute)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])


EPILOG = """\b
Examples:
  fairlead broker list
  fairlead broker restart 1          its leaders move first: clients notice nothing
  fairlead broker kill 1             as `kill -9`; the supervisor starts it again
  fairlead broker pause 1 && sleep 5 && fairlead broker resume 1
"""


@click.group(cls=BrokerGroup, epilog=EPILOG)
def broker() -> None:
    """Act on single brokers of a local cluster."""
