"""Entry point of `kubectl-fairlead`, which kubectl runs as `kubectl fairlead`."""

from __future__ import annotations

import sys

import click

from fairlead_cli.command_line import run_command_line
from fairlead_cli.kubectl.completion_script import COMPLETE_VARIABLE, completion
from fairlead_cli.kubectl.drill import drill
from fairlead_cli.kubectl.metadata import metadata
from fairlead_cli.kubectl.report import report
from fairlead_cli.kubectl.status import status
from fairlead_cli.kubectl.topic import topic
from fairlead_cli.kubectl.whatif import whatif
from fairlead_cli.verb_group import VerbGroup

HELP = """Look after Fairlead in a Kubernetes cluster.

\b
Examples:
  kubectl fairlead status
  kubectl fairlead topic describe orders
  kubectl fairlead whatif node/worker-2
  kubectl fairlead drill --cluster demo --target Leader --fault Kill
  kubectl fairlead metadata export metadata.json
  kubectl fairlead report

Exit codes: 0 done, 1 failed or something is wrong, 2 wrong usage, 130 interrupted.
"""


@click.group(
    "kubectl-fairlead",
    cls=VerbGroup,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def plugin() -> None:
    """Do nothing: the verbs do the work."""


for command in (status, topic, whatif, metadata, drill, report, completion):
    plugin.add_command(command)


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    # click would derive from the two words of the program a variable that no shell can set.
    return run_command_line(
        plugin, arguments, "kubectl fairlead", complete_variable=COMPLETE_VARIABLE
    )


def main() -> None:
    """Console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
