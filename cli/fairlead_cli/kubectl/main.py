"""Entry point of `kubectl-fairlead`, which kubectl runs as `kubectl fairlead`."""

from __future__ import annotations

import sys

import click

from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.kubectl.completion import completion
from fairlead_cli.kubectl.drill import drill
from fairlead_cli.kubectl.report import report
from fairlead_cli.kubectl.status import status
from fairlead_cli.kubectl.topic import topic

HELP = """Look after Fairlead in a Kubernetes cluster.

\b
Examples:
  kubectl fairlead status
  kubectl fairlead topic describe orders
  kubectl fairlead drill --cluster demo --target Leader --fault Kill
  kubectl fairlead report

Exit codes: 0 done, 1 failed or something is wrong, 2 wrong usage, 130 interrupted.
"""


@click.group(
    "kubectl-fairlead", help=HELP, context_settings={"help_option_names": ["-h", "--help"]}
)
def plugin() -> None:
    """The group itself does nothing."""


for command in (status, topic, drill, report, completion):
    plugin.add_command(command)


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and answer with its exit code."""
    from fairlead_cli.main import print_error

    try:
        outcome = plugin.main(args=arguments, prog_name="kubectl fairlead", standalone_mode=False)
        return outcome if isinstance(outcome, int) else ExitCode.OK
    except CliError as error:
        print_error(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED


def main() -> None:
    """Console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
