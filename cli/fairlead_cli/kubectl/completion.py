"""Completion: the script of a shell for `kubectl-fairlead`, and what kubectl itself asks for.

kubectl completes plugins by calling `kubectl_complete-NAME` with the words so far; it answers with
a line a proposal and a last line that says how to use them (`:4`: no files, as cobra has it).
"""

from __future__ import annotations

import sys

import click

from fairlead_cli.completion import print_script

EPILOG = """\b
Examples:
  eval "$(kubectl fairlead completion bash)"     in ~/.bashrc, for kubectl-fairlead itself

`kubectl fairlead <TAB>` needs nothing: kubectl (1.26 or later) finds kubectl_complete-fairlead.
"""
NO_FILES = ":4"
PROGRAM = "kubectl-fairlead"
COMPLETE_VARIABLE = "_KUBECTL_FAIRLEAD_COMPLETE"


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    print_script(ctx.find_root().command, shell, PROGRAM, COMPLETE_VARIABLE)


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
