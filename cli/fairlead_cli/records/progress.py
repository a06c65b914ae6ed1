"""A progress bar on stderr, for people who wait."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REDRAW_S = 0.1


@contextmanager
def progress_bar(label: str, total_bytes: int | None) -> Iterator[Callable[[int, int], None]]:
    """Yield `advance(size, records)`; cheap enough to be called for every record.

    With a known size it is a bar with an estimate, otherwise a spinner with a count.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from fairlead_cli.output import build_console

    shape = (
        (SpinnerColumn(),)
        if total_bytes is None
        else (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    )
    progress = Progress(
        TextColumn("{task.description}"),
        *shape,
        TextColumn("{task.fields[records]:,} records"),
        TimeElapsedColumn(),
        console=build_console(stderr=True),
        auto_refresh=False,
    )
    task = progress.add_task(label, total=total_bytes, records=0)
    done = 0
    count = 0
    drawn = 0.0

    def advance(size: int, records: int) -> None:
        nonlocal done, count, drawn
        done += size
        count = records
        # Read the clock for one record in 64: it would cost as much as the bar itself.
        if records & 63:
            return
        now = time.monotonic()
        if now - drawn >= REDRAW_S:
            drawn = now
            progress.update(task, completed=done, records=records)
            progress.refresh()

    with progress:
        yield advance
        progress.update(task, completed=total_bytes or done, records=count)
        progress.refresh()
