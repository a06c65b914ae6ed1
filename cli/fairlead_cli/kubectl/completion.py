"""What kubectl asks for when somebody presses TAB behind `kubectl fairlead`.

kubectl completes plugins by calling `kubectl_complete-NAME` with the words so far; it answers with
a line a proposal and a last line that says how to use them (`:4`: no files, as cobra has it).
"""

from __future__ import annotations

import sys

import click

from fairlead_cli.kubectl.completion_script import COMPLETE_VARIABLE, PROGRAM

NO_FILES = ":4"


def propose(words: list[str]) -> list[str]:
    """Return what may come in the place of the last word."""
    from click.shell_completion import ShellComplete

    from fairlead_cli.kubectl.main import plugin

    *before, incomplete = words or [""]
    completer = ShellComplete(plugin, {}, PROGRAM, COMPLETE_VARIABLE)
    items = completer.get_completions(before, incomplete)
    return [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in items]


def main() -> None:
    """Console script `kubectl_complete-fairlead`."""
    for line in [*propose(sys.argv[1:]), NO_FILES]:
        click.echo(line)
