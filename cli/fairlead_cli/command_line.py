"""Runs one command line and answers with its exit code, for `fairlead` and `kubectl fairlead`.

Every expected error becomes a message and an exit code here, and nowhere else.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import CliError, ExitCode, InputError, ReaderGoneError
from fairlead_cli.output import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence


# A file that takes nothing more: a full disk, a quota, a limit (`ulimit -f`), a broken device.
OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run_command_line(
    command: click.Command,
    arguments: Sequence[str] | None,
    program: str,
    *,
    complete_variable: str | None = None,
) -> int:
    """`arguments` without the program's name; None takes those of this process.

    By `complete_variable` a shell's script asks for proposals; None: as click names it.
    """
    open_closed_streams()
    escape_what_stdout_lacks()
    try:
        refuse_undecodable(sys.argv[1:] if arguments is None else arguments)
        # https://no-color.org: rich knows the variable by itself, click does not.
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
    except OSError as error:
        # Errors about files are told by the verbs, with the file's name: this one is of our output.
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        forget_output()
        print_error(CliError(f"cannot write the output: {error.strerror}"))
        return ExitCode.FAILED
    except RuntimeError as error:
        # Ctrl-C inside of a class body that is being imported (Python 3.11: `__set_name__`).
        if isinstance(error.__cause__, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        raise


def refuse_undecodable(arguments: Sequence[str]) -> None:
    """InputError for an argument that is not text in this locale, unless it is a file's name.

    Names and texts go out as UTF-8, and would fail there with an error of an encoder.
    """
    for argument in arguments:
        path = argument.partition("=")[2] if argument.startswith("--") else argument
        if not is_text(argument) and not os.path.lexists(path):
            shown = argument.encode(errors="surrogateescape").decode(errors="backslashreplace")
            raise InputError(f"the argument '{shown}' is not UTF-8 text")


def is_text(argument: str) -> bool:
    """Tell whether Python could decode an argument; bytes that it could not are surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_closed_streams() -> None:
    """Open streams that the shell has closed (`>&-`), for which Python has None."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def escape_what_stdout_lacks() -> None:
    """Have `\\u2026` written where the terminal's encoding has no `…`, as on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def forget_output() -> None:
    """Python flushes stdout once more at exit and would complain: that flush goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(error: CliError) -> None:
    """To stderr, so that a failing verb never pollutes what a script reads.

    Names that clients have chosen stand in it, and must not rewrite a terminal.
    """
    label = click.style("error:", fg="red", bold=True)
    click.echo(f"{label} {escape_controls(error.message)}", err=True)
    if error.hint:
        click.echo(escape_controls(error.hint), err=True)
