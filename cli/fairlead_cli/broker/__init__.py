"""`fairlead broker`: run a broker as this process, or act on brokers of a local cluster."""

from __future__ import annotations

import click

from fairlead_cli.errors import ExitCode
from fairlead_cli.service_options import service_options
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
    "drain": Verb("fairlead_cli.broker.drain", "drain", "Move all that a broker holds to others."),
    "undrain": Verb("fairlead_cli.broker.drain", "undrain", "Let it hold partitions again."),
    "fence": Verb(
        "fairlead_cli.broker.fence", "fence", "Take a broker out of service until `unfence`."
    ),
    "unfence": Verb("fairlead_cli.broker.fence", "unfence", "Let it be in service again."),
    "disks": Verb(
        "fairlead_cli.broker.disks", "command", "Show its log directories, and move between them."
    ),
    "unregister": Verb(
        "fairlead_cli.broker.unregister", "command", "Forget a broker that is gone for good."
    ),
    "resume": Verb("fairlead_cli.broker.pause", "resume", "Let a paused broker go on (SIGCONT)."),
}

EPILOG = """\b
Examples:
  fairlead broker --config /etc/fairlead/server.properties
  fairlead broker --config server.properties --set log.retention.hours=24
  fairlead broker list
  fairlead broker restart 1          its leaders move first: clients notice nothing
  fairlead broker kill 1             as `kill -9`; the supervisor starts it again
  fairlead broker drain 3 --wait     move all its replicas to other brokers
  fairlead broker fence 3            keep it out of service, with its data, until `unfence`
  fairlead broker disks 2            show the replicas in each of its folders
  fairlead broker unregister 3       remove a broker that is drained and stopped for good
  fairlead broker pause 1 && sleep 5 && fairlead broker resume 1

A broker that runs with --config logs to stderr, and prints one line that begins with `ready` once
it serves. SIGTERM stops it cleanly: its leaders move to other brokers first. Exit codes: 0 stopped
on request, 1 it cannot start, 2 wrong settings.
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG, invoke_without_command=True)
@service_options("server.properties")
@click.pass_context
def broker(context: click.Context, config: str | None, assignments: tuple[str, ...]) -> int:
    """Run a broker with --config FILE, or act on single brokers of a local cluster."""
    if context.invoked_subcommand is not None:
        if config is not None or assignments:
            raise click.UsageError(
                f"--config and --set run a broker as this process; '{context.invoked_subcommand}' "
                "is about brokers of a local cluster"
            )
        return ExitCode.OK
    if config is None and assignments:
        raise click.UsageError("name a file of settings with --config FILE")
    if config is None:
        click.echo(context.get_help(), err=True)
        return ExitCode.USAGE
    from fairlead_broker.main import main

    chosen = [f"--set={assignment}" for assignment in assignments]
    return main(["--config", config, *chosen])
