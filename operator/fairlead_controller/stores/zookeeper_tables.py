"""How a table looks as a znode. Pure.

The first line is a JSON object with the table's name, the epoch of its writer, and the number of
this write; the lines of the table follow (`table_text`). The table's version is the znode's
dataVersion and mzxid: the dataVersion alone starts again if somebody deletes and creates the znode.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead_controller.decisions.tables.security_lines import is_security_table
from fairlead_controller.decisions.tables.stored_table import (
    TABLE_BYTES_MAX,
    StoreCorruptError,
    StoredTable,
    StoreError,
)
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_controller.stores.table_text import decode_lines, encode_line
from fairlead_zookeeper.operations import Stat, Znode
from fairlead_zookeeper.znodes import table_path

HEAD_BYTES_MAX: Final = 1_000
ZNODE_BYTES_MAX: Final = TABLE_BYTES_MAX + HEAD_BYTES_MAX
"""The largest table that is written: a multi with it stays below `jute.maxbuffer`."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table as it was last read or written."""

    name: str
    znode_version: int
    mzxid: int
    controller_epoch: int
    write_count: int
    write_number: int
    records: Mapping[str, bytes]
    """Key → its line of the text, so that only changed lines are encoded again."""

    @property
    def version(self) -> str:
        """The table's version."""
        return table_version(self.znode_version, self.mzxid)

    @property
    def data(self) -> bytes:
        """The znode's data."""
        head = {
            "table": self.name,
            "epoch": self.controller_epoch,
            "write": self.write_count,
            "attempt": self.write_number,
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        return b"".join([text, b"\n", *self.records.values()])

    @property
    def lines(self) -> dict[str, str]:
        """The lines by key."""
        return {
            key: record[len(key.encode()) + 1 : -1].decode() for key, record in self.records.items()
        }

    def stored(self) -> StoredTable:
        """Return the table as the controller sees it."""
        return StoredTable(
            self.version, self.controller_epoch, self.write_number, self.lines, self.write_count
        )

    def at(self, stat: Stat) -> "KnownTable":
        """Return the same table with the version that the server gave it."""
        return KnownTable(
            self.name,
            stat.version,
            stat.mzxid,
            self.controller_epoch,
            self.write_count,
            self.write_number,
            self.records,
        )


def table_version(znode_version: int, mzxid: int) -> str:
    """Return the version of a table in the form that the controller gets."""
    return f"{znode_version}@{mzxid}"


def read_table(name: str, znode: Znode) -> KnownTable:
    """Read a table's znode; StoreCorruptError, which names path and line, if it is malformed."""
    path, is_secret = table_path(name), is_security_table(name)
    first, newline, text = znode.data.partition(b"\n")
    # Any line of a damaged table may stand here. Of a secret one the error shows nothing.
    shown = "" if is_secret else f": {first[:80]!r}"
    try:
        head = json.loads(first)
        owner, epoch = str(head["table"]), int(head["epoch"])
        count, number = int(head["write"]), int(head["attempt"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        kind = type(error).__name__
        raise StoreCorruptError(f"{path} is damaged in line 1{shown}: {kind}") from None
    try:
        body = text.decode()
    except UnicodeDecodeError as error:
        line = 2 + text.count(b"\n", 0, error.start)
        raise StoreCorruptError(f"{path} is damaged in line {line}: it is not UTF-8") from None
    if owner != name or not newline or (body and not body.endswith("\n")):
        raise StoreCorruptError(f"{path} is not the whole table {name}{shown}")
    lines = decode_lines(body, path, first=2, is_secret=is_secret)
    records = {key: encode_line(key, line).encode() for key, line in lines.items()}
    return KnownTable(name, znode.stat.version, znode.stat.mzxid, epoch, count, number, records)


def next_table(write: TableWrite, known: KnownTable | None) -> KnownTable:
    """Return the table that a write makes of a known table (None: a new one), without its version.

    StoreError, which names the largest line, if one znode cannot hold it.
    """
    records = {} if known is None else dict(known.records)
    for key, line in write.lines.items():
        if line is None:
            records.pop(key, None)
        else:
            records[key] = encode_line(key, line).encode()
    size = sum(map(len, records.values()))
    if size > TABLE_BYTES_MAX:
        fattest = max(records, key=lambda key: len(records[key]))
        raise StoreError(
            f"table {write.table} would have {size} bytes, but {table_path(write.table)} can have "
            f"{TABLE_BYTES_MAX}: of its {len(records)} lines {fattest!r} is the longest with "
            f"{len(records[fattest])} bytes"
        )
    count = 1 if known is None else known.write_count + 1
    return KnownTable(
        write.table, -1, -1, write.controller_epoch, count, write.write_number, records
    )
