"""What kubectl asks for when somebody presses TAB behind `kubectl fairlead`.

kubectl completes plugins by calling `kubectl_complete-NAME` with the words so far; it answers with
a line a proposal and a last line that says how to use them, as cobra has it: `:4` for these and
nothing else, `:0` for files where there are none.
"""

from __future__ import annotations

import sys

import click

from fairlead_cli.kubectl.completion_script import COMPLETE_VARIABLE, PROGRAM

NO_FILES = ":4"
FILES = ":0"
PATHS = ("file", "dir")
"""What click says in place of proposals that only the shell can make."""


def propose(words: list[str]) -> list[str]:
    """Return the lines of an answer: what may come in the place of the last word, and its use."""
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
