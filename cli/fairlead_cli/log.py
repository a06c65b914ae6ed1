"""`fairlead log dump`: segment files, indexes and checkpoints in readable form.

The files are read directly, with or without a running broker; nothing is written. Rows are printed
while they are read, because a segment may have more of them than fit in memory.
"""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError, ExitCode, InputError
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.log_directories import find_log_directories as broker_log_directories
from fairlead_cli.options import output_option
from fairlead_cli.output import encode_json, escape_controls, format_count, tell
from fairlead_cli.records.sink import json_bytes
from fairlead_cli.verb_group import VerbGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairlead_broker.tools.dump import Dump
    from fairlead_broker.tools.verify import Finding

# The first rows decide the column widths; a wider cell later only shifts its own line.
ROWS_MEASURED = 200
# A batch has more fields than a terminal has columns; the JSON has all of them.
BATCH_COLUMNS_SHOWN = (
    "position",
    "size",
    "base_offset",
    "last_offset",
    "records",
    "leader_epoch",
    "codec",
    "max_timestamp",
    "producer_id",
    "base_sequence",
    "crc_valid",
)

EPILOG = """\b
Examples:
  fairlead log dump .fairlead/broker-0/orders-0
  fairlead log dump .fairlead/broker-0/orders-0/00000000000000000000.log
  fairlead log dump .fairlead/broker-0/orders-0/00000000000000000000.log --records
  fairlead log dump .fairlead --verify
  fairlead log dump .fairlead/broker-0/orders-0 -o json | jq 'select(.records > 100)'

DIR is the folder of a partition, the log directory of a broker, or a local cluster's data
directory. With -o json every row is a line. Exits with 1 if a file is damaged.
"""


@click.group(cls=VerbGroup, epilog=EPILOG)
def log() -> None:
    """Show segment files, indexes and checkpoints."""


@log.command("dump", epilog=EPILOG)
@click.argument("path", metavar="SEGMENT|DIR", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Print only errors: in CRCs, offsets and indexes.")
@click.option(
    "--records", is_flag=True, help="Decompress batches and print one row for each record."
)
@output_option("table", "json")
def dump(path: Path, verify: bool, records: bool, output: str) -> int:
    """Show the batches of a segment, or every file of a partition or a log directory."""
    try:
        if not path.exists():
            raise InputError(f"there is no {path}", hint="Name a segment file or a directory.")
        if verify:
            return verify_path(path, output)
        return dump_path(path, output, records=records)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise CliError(f"cannot read {error.filename or path}: {error.strerror}") from error


def dump_path(path: Path, output: str, *, records: bool) -> int:
    """Print every file as a table; the exit code says whether all files are valid."""
    from fairlead_broker.tools.dump import UnknownFileError, open_dump

    problem_count = 0
    files = list(find_files(path))
    if not files:
        raise build_nothing_error(path)
    for file in files:
        try:
            table = open_dump(file, records=records)
        except UnknownFileError as error:
            raise InputError(
                str(error), hint="Segments end in .log, .index, .timeindex, .snapshot."
            ) from error
        if output == "json":
            print_json_rows(table)
        else:
            print_table_rows(table)
        for problem in table.problems:
            click.echo(f"{file}: {problem}", err=True)
        problem_count += len(table.problems)
    return ExitCode.FAILED if problem_count else ExitCode.OK


def find_files(path: Path) -> Iterator[Path]:
    """Yield the file itself, or the files in a directory by partition."""
    from fairlead_broker.tools.dump import dumpable_files, partition_directories

    if path.is_file():
        yield path
        return
    for directory in find_log_directories(path):
        partitions = partition_directories(directory)
        if partitions != [directory]:
            yield from dumpable_files(directory)
        for partition in partitions:
            yield from dumpable_files(partition)


def find_log_directories(path: Path) -> list[Path]:
    """Return the brokers' log directories if the path is a cluster's data directory, else it."""
    layout = Layout(path)
    if not layout.cluster_file.is_file():
        return [path]
    return [
        folder
        for broker_id in layout.known_brokers()
        for folder in broker_log_directories(layout, broker_id)
    ]


def build_nothing_error(path: Path) -> CliError:
    """Return the error for a directory without logs, or for a parent directory."""
    return CliError(
        f"there are no segments in {path}",
        hint="Brokers of a local cluster keep theirs in .fairlead/broker-0, broker-1, …",
    )


def print_json_rows(table: Dump) -> None:
    """Print a line for each row, with the name of its file."""
    for row in table.rows:
        document: dict[str, Any] = {"file": str(table.path)}
        for name, cell in zip(table.columns, row, strict=True):
            document |= json_cell(name, cell)
        click.echo(encode_json(document))


def json_cell(name: str, cell: object) -> dict[str, Any]:
    """Return a cell in the form of `consume -o json`: keys and values of records are bytes."""
    if isinstance(cell, bytes | memoryview) or (cell is None and name in ("key", "value")):
        return dict(json_bytes(name, None if cell is None else bytes(cell)))
    if name == "headers" and isinstance(cell, list | tuple):
        return {name: [{"name": key, **json_bytes("value", value)} for key, value in cell]}
    return {name: cell}


def print_table_rows(table: Dump) -> None:
    """Print rows while they are read, with aligned columns."""
    shown = [
        index
        for index, name in enumerate(table.columns)
        if "base_offset" not in table.columns or name in BATCH_COLUMNS_SHOWN
    ]
    names = [table.columns[index] for index in shown]
    rows = ([show_cell(row[index]) for index in shown] for row in table.rows)
    first = list(islice(rows, ROWS_MEASURED))
    widths = [max(map(len, column)) for column in zip(names, *first, strict=True)]
    click.secho(f"{table.path}: {table.kind.value}", bold=True)
    click.secho(align(names, widths), dim=True)
    for row in chain(first, rows):
        click.echo(align(row, widths))


def show_cell(cell: object) -> str:
    """Return one line, whatever the bytes are."""
    match cell:
        case None:
            return "-"
        case bool():
            return "yes" if cell else "NO"
        case bytes() | memoryview():
            return show_cell(bytes(cell).decode(errors="backslashreplace"))
        case list() | tuple():
            pairs = (f"{show_cell(key)}={show_cell(value)}" for key, value in cell)
            return ",".join(pairs) or "-"
        case _:
            return escape_controls(str(cell).replace("\n", "\\n").replace("\t", "\\t"))


def align(cells: Iterable[str], widths: list[int]) -> str:
    """Align numbers to the right."""
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def verify_path(path: Path, output: str) -> int:
    """Print only the problems, and how much was checked."""
    from fairlead_broker.tools.dump import partition_directories, segment_files
    from fairlead_broker.tools.verify import verify_partition, verify_segment

    findings: list[Finding] = []
    segments = 0
    if path.is_file():
        if path.suffix != ".log":
            raise InputError(
                f"{path.name} is no segment", hint="--verify takes a .log file or a directory."
            )
        segments = 1
        findings += verify_segment(path)
    else:
        partitions = [
            partition
            for directory in find_log_directories(path)
            for partition in partition_directories(directory)
        ]
        if not partitions:
            raise build_nothing_error(path)
        for partition in partitions:
            segments += len(segment_files(partition))
            findings += verify_partition(partition)
    if output == "json":
        for finding in findings:
            tell(encode_json({"file": str(finding.path), "problem": finding.problem}))
    else:
        for finding in findings:
            tell(f"{finding.path}: {finding.problem}")
        looked_at = format_count(segments, "segment")
        verdict = f"{format_count(len(findings), 'problem')} in" if findings else "Nothing wrong in"
        click.echo(f"{verdict} {looked_at}.", err=True)
    return ExitCode.FAILED if findings else ExitCode.OK
