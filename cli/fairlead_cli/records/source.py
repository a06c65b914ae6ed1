"""Read records to produce: lines of text, rows of CSV, lines of JSON.

Bytes are only decoded if they have to be parsed: a line or a JSON document becomes the value
unchanged. Errors name the line.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from fairlead_cli.errors import CliError
from fairlead_cli.output import format_count
from fairlead_cli.records.start import TIMESTAMP_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

# One encoder for all rows: `json.dumps` with options would build an encoder for each row.
COMPACT_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# Python's own limit is 128 KiB; the brokers decide how large a record may be.
CELL_CHARACTERS_MAX = 100_000_000
# Excel and other programs write it at the beginning of UTF-8 files.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Real tables repeat many cells.
CELLS_REMEMBERED = 1 << 16


class SourceRecord(NamedTuple):
    """One record to send.

    `size` is its size in the input, for the progress bar. Without a timestamp, the client uses the
    time of sending.
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    size: int
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to split an input into records."""

    name: str
    key_separator: str | None = None
    key_field: str | None = None
    header_fields: tuple[str, ...] = ()
    timestamp_field: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    null_marker: str | None = None
    numbers: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that every row must have."""
        named = (self.key_field, self.timestamp_field, *self.header_fields)
        return tuple(field for field in named if field is not None)


def refuse_constant(name: str) -> None:
    """Refuse NaN, Infinity and -Infinity, which Python accepts but JSON does not have."""
    raise ValueError(f"{name} is no number of JSON")


PARSE_JSON = json.JSONDecoder(parse_constant=refuse_constant).decode


def read_lines(stream: IO[bytes], options: SourceOptions) -> Iterator[SourceRecord]:
    """Yield a record for each line; with a key separator, a line is `key<separator>value`."""
    separator = options.key_separator.encode() if options.key_separator else None
    marker = options.null_marker.encode() if options.null_marker is not None else None
    headers: list[tuple[str, bytes | None]] = list(options.headers)
    for number, line in enumerate(stream, start=1):
        text = line.rstrip(b"\r\n")
        key: bytes | None = None
        value: bytes | None = text
        if separator is not None:
            key, found, value = text.partition(separator)
            if not found:
                raise CliError(
                    f"{options.name}, line {number}: no key separator "
                    f"'{options.key_separator}' in it",
                    hint="Every line must be KEY<separator>VALUE with --key-separator.",
                )
        yield SourceRecord(
            None if key == marker else key, None if value == marker else value, headers, len(line)
        )


def read_json_lines(stream: IO[bytes], options: SourceOptions) -> Iterator[SourceRecord]:
    """Yield a record for each line, a JSON object; the value is the line, byte for byte."""
    needs_fields = bool(options.fields)
    for number, line in enumerate(stream, start=1):
        text = line.removeprefix(BYTE_ORDER_MARK).strip() if number == 1 else line.strip()
        if not text:
            continue
        place = f"{options.name}, line {number}"
        row = parse_object(text, place)
        if needs_fields:
            yield build_row_record(row, text, options, len(line), place)
        else:
            yield SourceRecord(None, text, list(options.headers), len(line))


def parse_object(text: bytes, place: str) -> dict[str, Any]:
    """Return a JSON object; the error says where the text is invalid."""
    try:
        row = PARSE_JSON(text.decode())
    except ValueError as error:
        raise CliError(f"{place}: not JSON: {error}") from error
    except RecursionError as error:
        raise CliError(f"{place}: nested too deep") from error
    if not isinstance(row, dict):
        raise CliError(f"{place}: a JSON object was expected, not {type(row).__name__}")
    return row


def read_csv_rows(stream: IO[bytes], options: SourceOptions) -> Iterator[SourceRecord]:
    """Yield each row as a JSON object, with names from the first line; empty cells are null."""
    counted = CountingLines(stream, options.name)
    csv.field_size_limit(CELL_CHARACTERS_MAX)
    reader = csv.reader(counted)
    try:
        names = next(reader, None)
        if names is None:
            return
        check_header_line(names, options)
        for row in reader:
            if not row:
                continue
            place = f"{options.name}, line {reader.line_num}"
            if len(row) != len(names):
                raise CliError(f"{place}: {len(row)} fields, but the first line names {len(names)}")
            yield build_csv_record(dict(zip(names, row, strict=True)), options, counted, place)
    except csv.Error as error:
        raise CliError(f"{options.name}, line {reader.line_num}: {error}") from error


def build_csv_record(
    cells: dict[str, str], options: SourceOptions, counted: CountingLines, place: str
) -> SourceRecord:
    """Return a row as compact JSON."""
    document = {
        name: parse_cell(cell, options.null_marker, options.numbers) for name, cell in cells.items()
    }
    value = COMPACT_JSON(document).encode()
    return build_row_record(document, value, options, counted.take_size(), place)


def build_row_record(
    row: dict[str, Any], value: bytes, options: SourceOptions, size: int, place: str
) -> SourceRecord:
    """Return a record with key, headers and timestamp from the fields in the options."""
    key = take_field(row, options.key_field, place) if options.key_field else None
    headers: list[tuple[str, bytes | None]] = list(options.headers)
    headers += [(field, take_field(row, field, place)) for field in options.header_fields]
    timestamp_ms = None
    if options.timestamp_field:
        timestamp_ms = parse_timestamp(take_field(row, options.timestamp_field, place), place)
    return SourceRecord(key, value, headers, size, timestamp_ms)


@lru_cache(maxsize=CELLS_REMEMBERED)
def parse_moment(text: str) -> int:
    """Convert ISO 8601 to milliseconds since 1970; ValueError for other texts."""
    moment = datetime.fromisoformat(text)
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)


def parse_timestamp(text: bytes | None, place: str) -> int | None:
    """Return milliseconds since 1970, given so or as ISO 8601 (default UTC); null stays null."""
    if text is None:
        return None
    try:
        timestamp_ms = int(text) if text.isdigit() else parse_moment(text.decode())
        if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
            raise ValueError("no record can have that timestamp")
    except ValueError as error:
        raise CliError(
            f"{place}: '{text.decode(errors='replace')}' is not a time of a record",
            hint="Times are ISO 8601 (2013-01-01T10:00:00Z) or milliseconds since 1970.",
        ) from error
    return timestamp_ms


@lru_cache(maxsize=CELLS_REMEMBERED)
def parse_cell(cell: str, null_marker: str | None, numbers: bool) -> str | int | float | None:
    """Return text, null or, if wanted, a number that JSON would write in the same way."""
    if cell in ("", null_marker):
        return None
    if numbers:
        for kind in (int, float):
            try:
                number = kind(cell)
            except ValueError:
                continue
            if repr(number) == cell and cell not in ("nan", "inf", "-inf"):
                return number
    return cell


def check_header_line(names: list[str], options: SourceOptions) -> None:
    """Check that the first line names every field that the options use, and none twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise CliError(
                f"{options.name}, line 1: {format_count(count, 'column')} have the name '{name}'",
                hint="A row becomes a JSON object, in which each name stands once.",
            )
    for field in options.fields:
        if field not in names:
            raise CliError(
                f"{options.name}, line 1: no field '{field}'",
                hint=f"The fields are: {', '.join(names)}",
            )


def take_field(row: dict[str, Any], field: str, place: str) -> bytes | None:
    """Return a field as bytes: text unchanged, other values as JSON; null is null."""
    try:
        value = row[field]
    except KeyError as error:
        raise CliError(
            f"{place}: no field '{field}'", hint=f"The fields are: {', '.join(row)}"
        ) from error
    if value is None:
        return None
    try:
        return (value if isinstance(value, str) else COMPACT_JSON(value)).encode()
    except UnicodeEncodeError as error:
        raise CliError(
            f"{place}: field '{field}' holds half of a surrogate pair (\\ud800 to \\udfff), which "
            "is no text"
        ) from error


class CountingLines:
    """Decodes lines for the CSV reader and counts their bytes; a row may span several lines."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        # Invalid UTF-8 passes here, so that it is reported for its own line, not for an earlier.
        self.lines = io.TextIOWrapper(
            stream, encoding="utf-8-sig", errors="surrogateescape", newline=""
        )
        self.name = name
        self.number = 0
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.number += 1
        try:
            self.size += len(line) if line.isascii() else len(line.encode())
        except UnicodeEncodeError as error:
            raise CliError(f"{self.name}, line {self.number}: it is not UTF-8 text") from error
        return line

    def take_size(self) -> int:
        """Return bytes since the last call."""
        size, self.size = self.size, 0
        return size
