"""Errors for users: what is wrong, and what to do next.

Any other exception from a verb is a defect and keeps its traceback.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes that scripts may rely on. Ctrl-C ends with 130, as shells expect."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class CliError(Exception):
    """The command failed, and not by a defect of its own; shown as two short paragraphs."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(CliError):
    """An argument, or a file that it names, is wrong; nothing was started or changed."""

    exit_code = ExitCode.USAGE


class NoAnswerError(CliError):
    """There was no reply; the broker may be restarting."""


class UnreachableError(NoAnswerError):
    """No connection came about, so that the broker has got no request."""


class NothingAuthorizedError(CliError):
    """The brokers authorize nothing, so that there are no access rules."""


class ForbiddenError(CliError):
    """The command's user may not do that to the topic."""


class ReaderGoneError(Exception):
    """The reader of stdout has closed it. This is no error of the command."""


class PipeBrokenError(Exception):
    """A connection or a pipe broke in the middle of the work, and not stdout."""
