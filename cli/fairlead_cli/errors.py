"""Errors that a user is meant to read: what is wrong, and what to do next.

Whatever else escapes from a verb is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What scripts may rely on. Ctrl-C ends with 130, as shells expect."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class CliError(Exception):
    """The command failed for a reason outside of it; shown as two short paragraphs."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(CliError):
    """The arguments or a file that they name are wrong; nothing was started or changed."""

    exit_code = ExitCode.USAGE


class NoAnswerError(CliError):
    """No reply came; the broker may be starting anew."""


class ForbiddenError(CliError):
    """The user of this command may not do that to the topic."""


class ReaderGoneError(Exception):
    """Whoever read our stdout closed it. Not an error of this command."""
