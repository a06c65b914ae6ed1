"""Entries of the three kinds of index file, one row each, with absolute offsets."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairlead_broker.log.files.file_names import OFFSET_DIGITS
from fairlead_broker.log.index.index_file import OFFSET_ENTRY, TIME_ENTRY
from fairlead_broker.log.index.transaction_index import TRANSACTION_ENTRY

INDEX_COLUMNS: Final = ("offset", "position")
TIME_INDEX_COLUMNS: Final = ("timestamp", "offset")
TRANSACTION_INDEX_COLUMNS: Final = (
    "version",
    "producer_id",
    "first_offset",
    "last_offset",
    "last_stable_offset",
)
READ_BYTES: Final = 1 << 20


def dump_index(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield last offset of a batch and the position of its first byte."""
    base_offset = int(path.name[:OFFSET_DIGITS])
    previous = (-1, -1)
    for at, (relative, position) in _entries(path, OFFSET_ENTRY, problems):
        if relative <= previous[0] or position <= previous[1]:
            problems.append(f"entry {at}: ({relative}, {position}) does not rise above {previous}")
        previous = (relative, position)
        yield base_offset + relative, position


def dump_time_index(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield largest timestamp so far and the last offset of the batch that brought it."""
    base_offset = int(path.name[:OFFSET_DIGITS])
    previous = (-1, -1)
    for at, (timestamp, relative) in _entries(path, TIME_ENTRY, problems):
        if timestamp <= previous[0] or relative < previous[1]:
            problems.append(f"entry {at}: ({timestamp}, {relative}) does not rise above {previous}")
        previous = (timestamp, relative)
        yield timestamp, base_offset + relative


def dump_transaction_index(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Aborted transactions."""
    for at, entry in _entries(path, TRANSACTION_ENTRY, problems):
        if entry[0] != 0:
            problems.append(f"entry {at}: version {entry[0]} instead of 0")
        yield entry


def _entries(
    path: Path, entry: struct.Struct, problems: list[str]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield number and fields of each whole entry."""
    at = 0
    with path.open("rb") as file:
        while content := file.read(READ_BYTES - READ_BYTES % entry.size):
            whole = len(content) - len(content) % entry.size
            for fields in entry.iter_unpack(content[:whole]):
                yield at, fields
                at += 1
            if whole != len(content):
                problems.append(f"{len(content) - whole} bytes behind the last whole entry")
