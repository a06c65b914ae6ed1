"""Runs one command line and answers with its exit code, for `fairlead` and `kubectl fairlead`.

Every expected error becomes a message and an exit code here, and nowhere else.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import CliError, ExitCode, ReaderGoneError

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_command_line(command: click.Command, arguments: Sequence[str] | None, program: str) -> int:
    """`arguments` without the program's name; None takes those of this process."""
    try:
        # https://no-color.org: rich knows the variable by itself, click does not.
        color = False if os.environ.get("NO_COLOR") else None
        outcome = command.main(arguments, program, standalone_mode=False, color=color)
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
    except RuntimeError as error:
        # Ctrl-C inside of a class body that is being imported (Python 3.11: `__set_name__`).
        if isinstance(error.__cause__, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        raise


def print_error(error: CliError) -> None:
    """To stderr, so that a failing verb never pollutes what a script reads."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error.message}", err=True)
    if error.hint:
        click.echo(error.hint, err=True)
