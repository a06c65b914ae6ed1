"""Groups of verbs: `fairlead` itself, `fairlead topic`, and others.

A table has the verbs by name, and a verb is imported only when it runs. So `--help`, shell
completion and cheap verbs do not load a Kafka client or a table renderer.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fairlead_cli.errors import PipeBrokenError, ReaderGoneError
from fairlead_cli.output import is_reader_gone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Verb(NamedTuple):
    """The module of a command, and the line that `--help` shows without importing it."""

    module: str
    attribute: str
    summary: str


@contextmanager
def _told_broken_pipes() -> Iterator[None]:
    """Raise ReaderGoneError where the reader of stdout is gone (`| head`): it has what it wanted.

    For any other pipe that breaks raise PipeBrokenError: click would end the process without a
    word.
    """
    try:
        yield
    except BrokenPipeError as error:
        if is_reader_gone(sys.stdout):
            raise ReaderGoneError from error
        raise PipeBrokenError(str(error)) from error


class VerbGroup(click.Group):
    """Imports a verb on use; for a misspelt verb the error names the most similar one.

    Without a table it has the commands that were added to it, as any group of click.
    """

    def __init__(
        self, *arguments: Any, verbs: Mapping[str, Verb] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.verbs: Mapping[str, Verb] = {} if verbs is None else verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.verbs, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(verb.module), verb.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{verb.module}.{verb.attribute} is not a command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Flush before a broken pipe is told: what is left would fail at exit."""
        with _told_broken_pipes():
            outcome: object = super().invoke(ctx)
            sys.stdout.flush()
        return outcome

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; `--help` and `--version` print here."""
        with _told_broken_pipes():
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command. Completion passes incomplete words: only a real run is refused."""
        known = self.list_commands(ctx)
        is_option = args[0].startswith("-")
        if args[0] not in known and not is_option and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(args[0], known, n=1)
            advice = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(known)}."
            ctx.fail(f"No such command '{args[0]}'. {advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs in the order of the table, without importing any."""
        if not self.verbs:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.verbs.items()])
