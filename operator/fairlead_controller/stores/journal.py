"""The file format of the embedded store: a text journal that begins with a whole snapshot.

    metadata-<generation>.journal, one record a line:
        <CRC-32 of the JSON, 8 hex digits> <space> <JSON> <newline>
    line 1     {"format": "fairlead-metadata", "version": 1, "generation": G, "tables": N,
               "release": the release that wrote it}
    lines 2…   N tables as they were: {"table", "version", "epoch", "write", "lines"}
    then       {"writes": [{"table", "version", "epoch", "write", "set", "remove"}, …]}

One record is one group commit. A record is synced before the next record is begun, so after a crash
only the last line can be torn: it was never acknowledged, and is cut off. A broken line before a
whole one is damage, and is reported rather than repaired. A new generation is written to a file
beside the old one, synced and renamed; then the old file is removed.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoredTable,
    StoreTooNewError,
    newer_format,
)
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_model.release import RELEASE

FORMAT: Final = "fairlead-metadata"
FORMAT_VERSION: Final = 1

Tables = dict[str, StoredTable]


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return the line of a record."""
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(text), text)


def encode_snapshot(tables: Mapping[str, StoredTable], generation: int) -> bytes:
    """Return the lines that begin a generation."""
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "generation": generation,
        "tables": len(tables),
        "release": RELEASE,
    }
    lines = [encode_record(header)]
    for name, table in sorted(tables.items()):
        record = {
            "table": name,
            "version": table.version,
            "epoch": table.controller_epoch,
            "write": table.write_number,
            "lines": dict(table.lines),
        }
        lines.append(encode_record(record))
    return b"".join(lines)


def encode_writes(writes: Sequence[tuple[TableWrite, str]]) -> bytes:
    """Return the line of a group commit, each write with the version that it makes."""
    entries = [
        {
            "table": write.table,
            "version": version,
            "epoch": write.controller_epoch,
            "write": write.write_number,
            "set": {key: line for key, line in write.lines.items() if line is not None},
            "remove": [key for key, line in write.lines.items() if line is None],
        }
        for write, version in writes
    ]
    return encode_record({"writes": entries})


def apply_write(table: StoredTable | None, write: TableWrite, version: str) -> StoredTable:
    """Return a table after a write."""
    lines = {} if table is None else dict(table.lines)
    for key, line in write.lines.items():
        if line is None:
            lines.pop(key, None)
        else:
            lines[key] = line
    count = 1 if table is None else table.write_count + 1
    return StoredTable(version, write.controller_epoch, write.write_number, lines, count)


def decode_journal(content: bytes, name: str) -> tuple[Tables, int]:
    """Read a journal: its tables, and the size of what is whole (without a torn last line).

    StoreCorruptError if the journal is damaged or has another format, StoreTooNewError if it has a
    newer format.
    """
    records, size = _whole_records(content, name)
    if not records:
        raise StoreCorruptError(f"{name} holds nothing readable")
    header, rest = records[0], records[1:]
    is_ours = header.get("format") == FORMAT
    version, release = header.get("version"), header.get("release")
    if is_ours and (problem := newer_format(name, FORMAT_VERSION, version, release)):
        raise StoreTooNewError(problem)
    if not is_ours or version != FORMAT_VERSION:
        raise StoreCorruptError(
            f"{name} is {header.get('format')} version {header.get('version')}, this release "
            f"reads {FORMAT} version {FORMAT_VERSION}"
        )
    count = header["tables"]
    if len(rest) < count:
        raise StoreCorruptError(f"{name} has {len(rest)} of its {count} tables")
    tables: Tables = {}
    try:
        for record in rest[:count]:
            tables[record["table"]] = StoredTable(
                record["version"],
                record["epoch"],
                record["write"],
                record["lines"],
                # Each write of a table makes its next version.
                write_count=int(record["version"]),
            )
        for record in rest[count:]:
            _replay(tables, record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorruptError(f"{name} has a record of another shape: {error!r}") from error
    return tables, size


def _replay(tables: Tables, record: Mapping[str, Any]) -> None:
    for entry in record["writes"]:
        lines: dict[str, str | None] = dict.fromkeys(entry["remove"])
        lines.update(entry["set"])
        write = TableWrite(entry["table"], None, entry["epoch"], lines, entry["write"])
        tables[entry["table"]] = apply_write(tables.get(entry["table"]), write, entry["version"])


def _whole_records(content: bytes, name: str) -> tuple[list[dict[str, Any]], int]:
    records: list[dict[str, Any]] = []
    size = 0
    broken_line = 0
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        record = _decode_line(line)
        if record is None:
            broken_line = broken_line or number
        elif broken_line:
            raise StoreCorruptError(
                f"{name} is damaged in line {broken_line}, before whole ones; restore it from a "
                "copy, or move it away to start anew"
            )
        else:
            records.append(record)
            size += len(line) + 1
    return records, size


def _decode_line(line: bytes) -> dict[str, Any] | None:
    checksum, space, text = line[:8], line[8:9], line[9:]
    if space != b" " or checksum != b"%08x" % crc32(text):
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None
