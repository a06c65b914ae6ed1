"""Answer kubectl when a user presses TAB after `kubectl fairlead`.

kubectl completes plugins by calling `kubectl_complete-NAME` with the words so far. The answer has a
line for each proposal and a last line with a directive, as in cobra: `:4` for these proposals and
no others, `:0` for file names if there are no proposals.
"""

from __future__ import annotations

import sys

import click

from fairlead_cli.kubectl.completion_script import COMPLETE_VARIABLE, PROGRAM

NO_FILES = ":4"
FILES = ":0"
PATHS = ("file", "dir")
"""click's types for proposals that only the shell can make."""


def propose(words: list[str]) -> list[str]:
    """Return the lines of the answer: proposals for the last word, and the directive."""
    from click.shell_completion import ShellComplete

    from fairlead_cli.kubectl.main import plugin

    *before, incomplete = words or [""]
    completer = ShellComplete(plugin, {}, PROGRAM, COMPLETE_VARIABLE)
    items = completer.get_completions(before, incomplete)
    if any(item.type in PATHS for item in items):
        return [FILES]
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in items]
    return [*lines, NO_FILES]


def main() -> None:
    """Console script `kubectl_complete-fairlead`."""
    for line in propose(sys.argv[1:]):
        click.echo(line)
