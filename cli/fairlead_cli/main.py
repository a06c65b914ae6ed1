"""Entry point of the `fairlead` command: it has the verbs, but imports nothing that they need."""

from __future__ import annotations

import sys

import click

from fairlead_cli.command_line import run_command_line
from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "up": Verb("fairlead_cli.up", "up", "Start a local cluster and show its live log."),
    "down": Verb("fairlead_cli.down", "down", "Stop a local cluster; its data stays."),
    "status": Verb("fairlead_cli.status", "status", "Show brokers, controller and topics."),
    "topic": Verb("fairlead_cli.topic", "topic", "Create, list, describe, alter, delete topics."),
    "group": Verb("fairlead_cli.group", "group", "List, describe, reset, delete consumer groups."),
    "txn": Verb("fairlead_cli.txn", "txn", "List, describe, find and abort transactions."),
    "user": Verb("fairlead_cli.user", "user", "Make, list and remove users of a secure cluster."),
    "acl": Verb("fairlead_cli.acl", "acl", "Say who may do what; explain a decision."),
    "quota": Verb("fairlead_cli.quota", "quota", "Say how much of the cluster clients may use."),
    "broker": Verb("fairlead_cli.broker", "broker", "Run a broker; restart, kill, list them."),
    "controller": Verb(
        "fairlead_cli.controller", "controller", "Run a controller, on plain hosts with ZooKeeper."
    ),
    "rebalance": Verb(
        "fairlead_cli.rebalance.command", "command", "Plan, and carry out, an even spread."
    ),
    "whatif": Verb("fairlead_cli.whatif.command", "command", "Tell what a loss would do."),
    "produce": Verb("fairlead_cli.produce", "produce", "Write records from lines, CSV or JSON."),
    "consume": Verb("fairlead_cli.consume", "consume", "Read records of a topic."),
    "spark": Verb("fairlead_cli.spark", "spark", "Run PySpark jobs against the cluster."),
    "drill": Verb("fairlead_cli.drill.command", "command", "Break something under load, measured."),
    "features": Verb("fairlead_cli.features", "features", "Show and raise feature levels."),
    "metadata": Verb("fairlead_cli.metadata", "metadata", "Save and rebuild the metadata."),
    "log": Verb("fairlead_cli.log", "log", "Look into segment files."),
    "config": Verb("fairlead_cli.config", "config", "Explain broker and topic settings."),
    "completion": Verb("fairlead_cli.completion", "completion", "Print a shell's completion."),
}

ROOT_HELP = """A Kafka-compatible log, started by one command.

Commands find a local cluster by --data DIR (.fairlead in the current folder) or any Kafka
cluster by --bootstrap HOST:PORT.

\b
Examples:
  fairlead up                                   three brokers at localhost:9092
  fairlead topic create orders --partitions 6
  echo 'hello' | fairlead produce orders
  fairlead consume orders --from beginning --count 1
  fairlead down

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""


def print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Print the installed version, which is read only on request."""
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"fairlead {version('fairlead')}")
    ctx.exit()


@click.group(
    cls=VerbGroup,
    verbs=VERBS,
    help=ROOT_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the version and exit.",
)
def fairlead() -> None:
    """Do nothing: each verb finds its own cluster."""


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run_command_line(fairlead, arguments, "fairlead")


def main() -> None:
    """Console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
