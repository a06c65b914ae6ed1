"""Entry point of the `fairlead` command.

Verbs are found by name in a table and imported only when they are run, so that `--help`, shell
completion and cheap verbs do not pay for a Kafka client or a table renderer. Every expected error
becomes a message and an exit code here, and nowhere else.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NamedTuple

import click

from fairlead_cli.errors import CliError, ExitCode


class Verb(NamedTuple):
    """Where a command lives, and the line that `--help` shows without importing it."""

    module: str
    attribute: str
    summary: str


VERBS = {
    "up": Verb("fairlead_cli.up", "up", "Start a local cluster and show its live log."),
    "down": Verb("fairlead_cli.down", "down", "Stop a local cluster; its data stays."),
    "status": Verb("fairlead_cli.status", "status", "Show brokers, controller and topics."),
    "topic": Verb("fairlead_cli.topic", "topic", "Create, list, describe, alter, delete topics."),
    "group": Verb("fairlead_cli.group", "group", "List, describe, reset, delete consumer groups."),
    "broker": Verb("fairlead_cli.broker", "broker", "Restart, kill, pause and list brokers."),
    "produce": Verb("fairlead_cli.produce", "produce", "Write records from lines, CSV or JSON."),
    "consume": Verb("fairlead_cli.consume", "consume", "Read records of a topic."),
    "spark": Verb("fairlead_cli.spark", "spark", "Run PySpark jobs against the cluster."),
    "drill": Verb("fairlead_cli.drill.command", "command", "Break something under load, measured."),
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


class ReaderGoneError(Exception):
    """Whoever read our stdout closed it. Not an error of this command."""


class VerbGroup(click.Group):
    """Knows its verbs by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command = getattr(import_module(verb.module), verb.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{verb.module}.{verb.attribute} is not a command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Flush inside the try: a reader that went away (`| head`) has what it wanted."""
        try:
            outcome: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        return outcome

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], VERBS, n=1)
            advice = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{args[0]}'.{advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])


def print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """The installed version, read only when it is asked for."""
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"fairlead {version('fairlead')}")
    ctx.exit()


@click.group(
    cls=VerbGroup, help=ROOT_HELP, context_settings={"help_option_names": ["-h", "--help"]}
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
    """The group itself does nothing: each verb finds its own cluster."""


def print_error(error: CliError) -> None:
    """To stderr, so that a failing verb never pollutes what a script reads."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error.message}", err=True)
    if error.hint:
        click.echo(error.hint, err=True)


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and answer with its exit code."""
    try:
        outcome = fairlead.main(args=arguments, prog_name="fairlead", standalone_mode=False)
        return outcome if isinstance(outcome, int) else ExitCode.OK
    except CliError as error:
        print_error(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except ReaderGoneError:
        # Python flushes stdout once more at exit and would complain: that flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


def main() -> None:
    """Console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
