"""Verbs with several names: a wrong name does not hide the results of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fairlead_cli.command_line import print_error
from fairlead_cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Found = TypeVar("Found")


def find_each(
    names: Iterable[str], find: Callable[[str], Found]
) -> tuple[list[Found], list[CliError]]:
    """Return the results in the order of the names, each once; and the errors of the others."""
    found, errors = [], []
    for name in dict.fromkeys(names):
        try:
            found.append(find(name))
        except CliError as error:
            errors.append(error)
    return found, errors


def report_missing(errors: Sequence[CliError]) -> int:
    """Print all errors to stderr, after the results; return the exit code of the command."""
    for error in errors:
        print_error(error)
    return max((error.exit_code for error in errors), default=ExitCode.OK)
