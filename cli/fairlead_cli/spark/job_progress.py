"""The progress of a job on stderr: a bar that fills as the lag falls."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def job_progress(name: str, *, is_shown: bool) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """Yield `show(queries)`, which takes the driver's reports of its queries."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from fairlead_cli.output import build_console

    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        console=build_console(stderr=True),
        auto_refresh=False,
        # A bar is useless in a log.
        disable=not (is_shown and sys.stderr.isatty()),
    )
    task = progress.add_task(name, total=None, figures="starting")
    furthest = 0

    def show(queries: list[dict[str, Any]]) -> None:
        nonlocal furthest
        lags = [query["lag"] for query in queries if query.get("lag") is not None]
        lag = sum(lags)
        furthest = max(furthest, lag)
        progress.update(
            task,
            total=furthest if lags and furthest else None,
            completed=furthest - lag,
            figures=describe_figures(queries),
        )
        progress.refresh()

    with progress:
        yield show


def describe_figures(queries: list[dict[str, Any]]) -> str:
    """Return batch, rate and lag of all queries together, in a few words."""
    if not queries:
        return "starting"
    batches = [query["batchId"] for query in queries if query.get("batchId") is not None]
    rate = sum(query.get("rowsPerSecond") or 0 for query in queries)
    lags = [query["lag"] for query in queries if query.get("lag") is not None]
    parts = [f"batch {max(batches)}" if batches else "first batch", f"{rate:,} records/s"]
    if lags:
        parts.append(f"lag {sum(lags):,}")
    return "  ".join(parts)
