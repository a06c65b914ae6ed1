"""`fairlead completion`: a script with which a shell completes verbs, options and values."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  eval "$(fairlead completion bash)"                                in ~/.bashrc
  eval "$(fairlead completion zsh)"                                 in ~/.zshrc
  fairlead completion fish > ~/.config/fish/completions/fairlead.fish
"""

COMPLETE_VARIABLE = "_FAIRLEAD_COMPLETE"


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell (bash 4.4 or later, zsh, fish)."""
    print_script(ctx.find_root().command, shell, "fairlead", COMPLETE_VARIABLE)


def print_script(command: click.Command, shell: str, program: str, variable: str) -> None:
    """Print the script that a shell has to evaluate: it calls `program` with `variable` set."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    completer = kind(command, {}, program, variable)
    # `source()` would first run the shell to check its version; printing does not need that.
    script = completer.source_template % completer.source_vars()
    if shell == "fish":
        # click's script takes the first comma for the end of a description.
        script = script.replace('string split "," ', 'string split --max 1 "," ')
    click.echo(script)
