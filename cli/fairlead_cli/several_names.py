"""Verbs that take several names: one that is wrong does not hide what the others have."""

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
    """Return what was found, in the order of the names, each once; and why the others were not."""
    found, errors = [], []
    for name in dict.fromkeys(names):
        try:
            found.append(find(name))
        except CliError as error:
            errors.append(error)
    return found, errors


def report_missing(errors: Sequence[CliError]) -> int:
    """Print all errors to stderr, behind what was found; return the exit code of the whole."""
    for error in errors:
        print_error(error)
    return max((error.exit_code for error in errors), default=ExitCode.OK)
