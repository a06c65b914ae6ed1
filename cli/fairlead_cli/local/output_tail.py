"""Follows the output files of the children, line by line, from their ends at the start.

By polling: to `stat` four files ten times a second is cheap, and simpler than to watch them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ_BYTES_MAX = 256 * 1024
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d+")
LINE_BYTES_MAX = 64 * 1024


@dataclass(slots=True)
class OutputTail:
    """`position` is the byte after the last complete line that was returned."""

    name: str
    path: Path
    position: int = 0

    def skip_to_end(self) -> None:
        """Skip the output of earlier runs."""
        try:
            self.position = self.path.stat().st_size
        except OSError:
            self.position = 0

    def read_lines(self) -> Iterator[str]:
        """Yield complete lines since the last call, reading a limited number of bytes at a time."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return
        if size < self.position:
            self.position = 0  # After a rotation a new file has begun.
        if size == self.position:
            return
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                chunk = file.read(READ_BYTES_MAX)
        except OSError:
            return  # Just rotated, or no free descriptor: the next call continues.
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            if len(chunk) < LINE_BYTES_MAX:
                return  # Half a line: wait for the rest.
            end = len(chunk)
        self.position += end
        for line in chunk[:end].splitlines():
            yield line.decode(errors="replace")


def merge_lines(tails: list[OutputTail]) -> list[tuple[str, str]]:
    """Return (name, line) of all new output, sorted by the lines' times.

    A line without a time (a traceback) stays after the line before it.
    """
    lines: list[tuple[str, str, str]] = []
    for tail in tails:
        moment = ""
        for line in tail.read_lines():
            if match := TIME.match(line):
                moment = match[0].replace("T", " ")
            lines.append((moment, tail.name, line))
    lines.sort(key=lambda entry: entry[0])
    return [(name, line) for _, name, line in lines]
