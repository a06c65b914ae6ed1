"""Run one command line and return its exit code, for `fairlead` and `kubectl fairlead`.

Only this module turns expected errors into a message and an exit code.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import (
    CliError,
    ExitCode,
    InputError,
    PipeBrokenError,
    ReaderGoneError,
)
from fairlead_cli.output import escape_controls, forget_output, is_reader_gone

if TYPE_CHECKING:
    from collections.abc import Sequence


# Errors of a file that accepts no more data: a full disk, a quota, `ulimit -f`, a broken device.
OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run_command_line(
    command: click.Command,
    arguments: Sequence[str] | None,
    program: str,
    *,
    complete_variable: str | None = None,
) -> int:
    """Run `arguments`, without the program's name; None uses those of this process.

    A shell's script asks for completions by `complete_variable`; None: click's name of it.
    """
    open_closed_streams()
    escape_what_stdout_lacks()
    try:
        refuse_undecodable(sys.argv[1:] if arguments is None else arguments)
        # https://no-color.org: rich reads this variable, click does not.
        color = False if os.environ.get("NO_COLOR") else None
        outcome = command.main(
            arguments, program, complete_variable, standalone_mode=False, color=color
        )
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
        forget_output()
        return ExitCode.OK
    except PipeBrokenError:
        if not is_reader_gone(sys.stderr):
            raise
        return ExitCode.FAILED  # Nobody reads why.
    except OSError as error:
        # Verbs report errors of files, with the file's name; other errors here are stdout's.
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        forget_output()
        print_error(CliError(f"cannot write the output: {error.strerror}"))
        return ExitCode.FAILED
    except RuntimeError as error:
        # Ctrl-C while a class body is imported (Python 3.11: `__set_name__`).
        if isinstance(error.__cause__, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        raise


def refuse_undecodable(arguments: Sequence[str]) -> None:
    """Raise InputError for an argument that is not text in this locale, unless it names a file.

    Names and texts are sent as UTF-8, which would fail later with an encoder's error.
    """
    for argument in arguments:
        path = argument.partition("=")[2] if argument.startswith("--") else argument
        if not is_text(argument) and not os.path.lexists(path):
            shown = argument.encode(errors="surrogateescape").decode(errors="backslashreplace")
            raise InputError(f"the argument '{shown}' is not UTF-8 text")


def is_text(argument: str) -> bool:
    """Tell whether Python could decode an argument; undecodable bytes become surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_closed_streams() -> None:
    """Open streams that the shell has closed (`>&-`); Python has None for them."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def escape_what_stdout_lacks() -> None:
    """Let stdout write `\\u2026` if the terminal's encoding has no `…`, as stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def print_error(error: CliError) -> None:
    """Print an error to stderr, so that it never gets into the output that a script reads.

    It may contain names chosen by clients, which must not control the terminal.
    """
    label = click.style("error:", fg="red", bold=True)
    click.echo(f"{label} {escape_controls(error.message)}", err=True)
    if error.hint:
        click.echo(escape_controls(error.hint), err=True)
