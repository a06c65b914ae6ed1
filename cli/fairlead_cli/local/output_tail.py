"""Follows the output files of the children, line by line, from where they were at the start.

Polled: a `stat` of four files ten times a second costs less than a watch on them would explain.
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
    """`position` is the byte after the last complete line that was given out."""

    name: str
    path: Path
    position: int = 0

    def skip_to_end(self) -> None:
        """Skip what earlier runs have written."""
        try:
            self.position = self.path.stat().st_size
        except OSError:
            self.position = 0

    def read_lines(self) -> Iterator[str]:
        """Complete lines since the last call, a bounded number of bytes at a time."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return
        if size < self.position:
            self.position = 0  # Rotated: a new file has begun.
        if size == self.position:
            return
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                chunk = file.read(READ_BYTES_MAX)
        except OSError:
            return  # Rotated just now, or no descriptor is left: the next call reads on.
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            if len(chunk) < LINE_BYTES_MAX:
                return  # Half a line: wait for the rest.
            end = len(chunk)
        self.position += end
        for line in chunk[:end].splitlines():
            yield line.decode(errors="replace")


def merge_lines(tails: list[OutputTail]) -> list[tuple[str, str]]:
    """(name, line) of what all of them printed since the last call, in the order of its time.

    A line without a time of its own (a traceback) stays behind the one before it.
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
