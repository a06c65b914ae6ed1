"""`fairlead broker …`: single brokers of a local cluster, one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "list": Verb(
        "fairlead_cli.broker.listing", "command", "List brokers: state, leaders, replicas."
    ),
    "restart": Verb(
        "fairlead_cli.broker.restart", "restart", "Stop a broker cleanly and start it again."
    ),
    "kill": Verb(
        "fairlead_cli.broker.restart", "kill", "Kill a broker (SIGKILL); it is started again."
    ),
    "pause": Verb(
        "fairlead_cli.broker.pause", "pause", "Freeze a broker (SIGSTOP) until `resume`."
    ),
    "resume": Verb("fairlead_cli.broker.pause", "resume", "Let a paused broker go on (SIGCONT)."),
}

EPILOG = """\b
Examples:
  fairlead broker list
  fairlead broker restart 1          its leaders move first: clients notice nothing
  fairlead broker kill 1             as `kill -9`; the supervisor starts it again
  fairlead broker pause 1 && sleep 5 && fairlead broker resume 1
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def broker() -> None:
    """Act on single brokers of a local cluster."""
