"""What a file of a data directory holds, as a table: the library behind `fairlead log dump`.

`open_dump(path)` knows every file that the broker writes by its name and answers a `Dump`: column
names, an iterator of rows, and `problems`, a list that fills up while the rows are read. Files are
hostile here: whatever they hold, the outcome is rows and problems, never an exception (except
`OSError`, and `UnknownFileError` for a name that is none of ours). Nothing is written.

`verify` (module `verify`) compares files with one another; a dump looks at one alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from fairlead_broker.log.files.file_names import (
    BOOT_RECORD,
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    CLEANER_CHECKPOINT,
    CUT_START,
    DELETED_SUFFIX,
    FAILED_FLUSH,
    HIGH_WATERMARK_CHECKPOINT,
    HOLES_MARK,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    METADATA_RECORD,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    RETENTION_SUFFIX,
    SNAPSHOT_SUFFIX,
    START_RECORD,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TOMBSTONE_CHECKPOINT,
    TRANSACTION_INDEX_SUFFIX,
    parse_offset_name,
    parse_partition_directory,
)
from fairlead_broker.tools.dump_index import (
    INDEX_COLUMNS,
    TIME_INDEX_COLUMNS,
    TRANSACTION_INDEX_COLUMNS,
    dump_index,
    dump_time_index,
    dump_transaction_index,
)
from fairlead_broker.tools.dump_log import BATCH_COLUMNS, RECORD_COLUMNS, dump_batches, dump_records
from fairlead_broker.tools.dump_small_files import (
    CUT_START_COLUMNS,
    EPOCH_COLUMNS,
    NUMBER_COLUMNS,
    OFFSET_COLUMNS,
    PROPERTY_COLUMNS,
    SNAPSHOT_COLUMNS,
    dump_epochs,
    dump_holes_mark,
    dump_json,
    dump_meta_properties,
    dump_number,
    dump_offsets,
    dump_partition_metadata,
    dump_snapshot,
)

Row: TypeAlias = tuple[object, ...]
_Reader: TypeAlias = Callable[[Path, list[str]], Iterator[Row]]


class UnknownFileError(ValueError):
    """The name is none that a data directory uses."""


class FileKind(Enum):
    """The files of a data directory; the value is what people call them."""

    LOG = "record batches"
    RECORDS = "records"
    INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "index of aborted transactions"
    SNAPSHOT = "producer snapshot"
    EPOCHS = "leader epochs"
    OFFSETS = "offset checkpoint"
    PARTITION_METADATA = "partition metadata"
    META_PROPERTIES = "directory properties"
    CLEAN_SHUTDOWN = "clean-shutdown marker"
    START = "start record"
    FAILED_FLUSH = "mark of a failed flush"
    HOLES_MARK = "mark of a compacted log"
    CUT_START = "mark of a log that may lack its beginning"


@dataclass(slots=True)
class Dump:
    """One file as a table. Read `rows` to the end before looking at `problems`."""

    path: Path
    kind: FileKind
    columns: tuple[str, ...]
    rows: Iterator[Row]
    problems: list[str] = field(default_factory=list)


_BY_SUFFIX: Final[dict[str, tuple[FileKind, tuple[str, ...], _Reader]]] = {
    LOG_SUFFIX: (FileKind.LOG, BATCH_COLUMNS, dump_batches),
    INDEX_SUFFIX: (FileKind.INDEX, INDEX_COLUMNS, dump_index),
    TIME_INDEX_SUFFIX: (FileKind.TIME_INDEX, TIME_INDEX_COLUMNS, dump_time_index),
    TRANSACTION_INDEX_SUFFIX: (
        FileKind.TRANSACTION_INDEX,
        TRANSACTION_INDEX_COLUMNS,
        dump_transaction_index,
    ),
    SNAPSHOT_SUFFIX: (FileKind.SNAPSHOT, SNAPSHOT_COLUMNS, dump_snapshot),
}
_OFFSETS: Final = (FileKind.OFFSETS, OFFSET_COLUMNS, dump_offsets)
_BY_NAME: Final[dict[str, tuple[FileKind, tuple[str, ...], _Reader]]] = {
    LEADER_EPOCH_CHECKPOINT: (FileKind.EPOCHS, EPOCH_COLUMNS, dump_epochs),
    PARTITION_METADATA: (FileKind.PARTITION_METADATA, PROPERTY_COLUMNS, dump_partition_metadata),
    META_PROPERTIES: (FileKind.META_PROPERTIES, PROPERTY_COLUMNS, dump_meta_properties),
    RECOVERY_POINT_CHECKPOINT: _OFFSETS,
    LOG_START_OFFSET_CHECKPOINT: _OFFSETS,
    HIGH_WATERMARK_CHECKPOINT: _OFFSETS,
    CLEANER_CHECKPOINT: _OFFSETS,
    TOMBSTONE_CHECKPOINT: _OFFSETS,
    CLEAN_SHUTDOWN: (FileKind.CLEAN_SHUTDOWN, PROPERTY_COLUMNS, dump_json),
    START_RECORD: (FileKind.START, PROPERTY_COLUMNS, dump_json),
    BOOT_RECORD: (FileKind.START, PROPERTY_COLUMNS, dump_json),
    METADATA_RECORD: (FileKind.START, PROPERTY_COLUMNS, dump_json),
    FAILED_FLUSH: (FileKind.FAILED_FLUSH, NUMBER_COLUMNS, dump_number),
    HOLES_MARK: (FileKind.HOLES_MARK, PROPERTY_COLUMNS, dump_holes_mark),
    CUT_START: (FileKind.CUT_START, CUT_START_COLUMNS, dump_number),
}


def open_dump(path: str | Path, *, records: bool = False) -> Dump:
    """Return a table of one file. With `records` a `.log` file is unpacked to its records.

    Working suffixes (`.deleted`, `.swap`, `.cleaned`) are seen through.
    """
    path = Path(path)
    name = path.name
    for suffix in (RETENTION_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX):
        name = name.removesuffix(suffix)
    entry = _BY_NAME.get(name)
    if entry is None:
        for suffix, candidate in _BY_SUFFIX.items():
            if parse_offset_name(name, suffix) is not None:
                entry = candidate
    if entry is None:
        raise UnknownFileError(f"{path.name} is no file of a data directory")
    kind, columns, reader = entry
    if records and kind is FileKind.LOG:
        kind, columns, reader = FileKind.RECORDS, RECORD_COLUMNS, dump_records
    problems: list[str] = []
    return Dump(path, kind, columns, reader(path, problems), problems)


def partition_directories(path: str | Path) -> list[Path]:
    """Return the partition directories at or below a directory, sorted.

    A directory that holds segments is a partition. The name alone decides only where there are
    neither segments nor partitions below: a data directory may well be called `broker-0`.
    """
    path = Path(path)
    if segment_files(path):
        return [path]
    below = sorted(
        child
        for child in path.iterdir()
        if child.is_dir() and parse_partition_directory(child.name) is not None
    )
    if not below and parse_partition_directory(path.name) is not None:
        return [path]
    return below


def segment_files(directory: str | Path) -> list[Path]:
    """Return the `.log` files of a partition directory in offset order."""
    return sorted(
        child
        for child in Path(directory).iterdir()
        if parse_offset_name(child.name, LOG_SUFFIX) is not None
    )


def dumpable_files(directory: str | Path) -> list[Path]:
    """Return all files of one directory that `open_dump` reads, sorted by name."""
    found = []
    for child in sorted(Path(directory).iterdir()):
        if child.is_file():
            try:
                open_dump(child)
            except UnknownFileError:
                continue
            found.append(child)
    return found
