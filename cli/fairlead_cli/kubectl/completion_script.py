"""`kubectl fairlead completion SHELL`: the script that completes `kubectl-fairlead` itself."""

from __future__ import annotations

import click

from fairlead_cli.completion import print_script

EPILOG = """\b
Examples:
  eval "$(kubectl fairlead completion bash)"     in ~/.bashrc, for kubectl-fairlead itself

`kubectl fairlead <TAB>` needs no script: kubectl (1.26 or later) finds kubectl_complete-fairlead.
"""
PROGRAM = "kubectl-fairlead"
COMPLETE_VARIABLE = "_KUBECTL_FAIRLEAD_COMPLETE"


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    print_script(ctx.find_root().command, shell, PROGRAM, COMPLETE_VARIABLE)
