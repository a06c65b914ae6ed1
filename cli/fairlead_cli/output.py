"""The output of verbs: JSON for scripts, tables for people, notes on stderr.

Every verb that prints a table has `-o json`; the JSON is a stable interface, the table is not.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# A terminal has a width; a pipe or a file has none, and wrapped cells would break grep.
PIPE_COLUMNS = 200
FOLDED_COLUMNS = 24
LINE_COLUMNS_MAX = 10_000
# Without tabs and line ends.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def tell(text: str, *, nl: bool = True) -> None:
    """Print a line on stdout; go on without it if the reader is gone (`| true`, `| head -1`).

    What a verb still has to do must not depend on who reads what it has done, nor must its exit
    code.
    """
    try:
        click.echo(text, nl=nl)
    except BrokenPipeError:
        if not is_reader_gone(sys.stdout):
            raise
        forget_output()


def forget_output() -> None:
    """Send what is still written to stdout nowhere, its last flush at exit, too.

    The flush would fail, and Python would complain.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(value: object) -> None:
    """Print one JSON document on stdout, indented, because people read it, too."""
    tell(encode_json(value, indent=2))


def encode_json(value: object, *, indent: int | None = None) -> str:
    """Return JSON for stdout: ASCII if stdout's encoding does not have all characters."""
    encoding = sys.stdout.encoding or "utf-8"
    is_ascii = encoding.lower().replace("_", "-") not in ("utf-8", "utf8")
    return json.dumps(value, indent=indent, ensure_ascii=is_ascii)


def build_console(*, stderr: bool = False) -> Console:
    """Return a console that never wraps text for a file or another program."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_COLUMNS
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
) -> None:
    """Print a plain table: `right` names the columns of numbers.

    If the terminal is too narrow, long cells of text are folded, down to `FOLDED_COLUMNS`. If that
    is not enough, the lines are longer than the terminal: nothing is omitted.
    """
    from rich.measure import Measurement
    from rich.text import Text

    # Clients choose the names of groups, clients and members. In a plain string, rich would take
    # text in brackets for markup, and `:key:` for an emoji.
    cells = [
        [Text(escape_controls(cell)) if isinstance(cell, str) else cell for cell in row]
        for row in rows
    ]
    table = build_table(columns, cells, title=title, right=right)
    # rich must not print by itself: it would end the process if the reader of a pipe is gone.
    console = build_console()
    unlimited = console.options.update(width=LINE_COLUMNS_MAX)
    console.width = max(console.width, Measurement.get(console, unlimited, table).minimum)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        tell(line.rstrip())


def build_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    title: str | None,
    right: Sequence[str],
) -> Table:
    """Return a table in which numbers and short words keep their width."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for index, column in enumerate(columns):
        width = max(cell_len(str(cell)) for cell in (column, *(row[index] for row in rows)))
        table.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in right,
            min_width=width if column in right else min(width, FOLDED_COLUMNS),
        )
    for row in rows:
        table.add_row(*row)
    return table


def note(text: str) -> None:
    """Print a remark that is not the answer to stderr, so that pipes stay clean."""
    click.echo(text, err=True)


@contextmanager
def note_if_interrupted(text: str) -> Iterator[None]:
    """Say what Ctrl-C does not end: the cluster goes on with what this command waits for."""
    try:
        yield
    except KeyboardInterrupt:
        note(text)
        raise


def is_reader_gone(stream: TextIO) -> bool:
    """Tell whether nobody can read any more what is written to a pipe or a socket."""
    poll = select.poll()
    try:
        poll.register(stream, 0)
    except (OSError, ValueError):
        return False  # It is closed, or no file.
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def escape_controls(text: str) -> str:
    """Return a text that cannot move the cursor or change the terminal."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def format_count(count: int, noun: str) -> str:
    """Return `1 record`, `336,776 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_moment(timestamp_ms: int) -> str:
    """Return UTC with milliseconds; after the year 9999, `@MILLISECONDS` as in `consume --from`."""
    from datetime import UTC, datetime

    seconds, milliseconds = divmod(timestamp_ms, 1000)
    try:
        moment = datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"@{timestamp_ms}"
    shown = moment.replace(microsecond=1000 * milliseconds).isoformat(timespec="milliseconds")
    return shown.replace("+00:00", "Z")


def format_bytes(size: int) -> str:
    """Return a size in decimal units, as for disks and networks."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
