"""A sparse index file: fixed-size entries of two rising numbers, the second a u32.

`.index` maps a relative offset to a position, `.timeindex` a timestamp to a relative offset. Both
have two states. *Active*: the columns are arrays in memory, and each entry is appended to the
file as well, so that a killed process loses none. *Sealed*: the columns are views that read pages
of the file through the shared cache. `bisect` works on both, so lookups need not know the state.

Kafka preallocates the active index and trims it on roll; here a file has only its entries. A file
that Kafka has not trimmed fails the check of `index_sanity` and is rebuilt.
"""

import struct
import sys
from array import array
from typing import Final, Protocol

from fairlead_broker.disk import Disk, unlink_if_present, write_fully
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.files.file_slice import OpenFile
from fairlead_broker.log.files.read_cache import PAGE_ENTRIES, ReadCache
from fairlead_model.invariants import violated
from fairlead_wire.segments import Buffer

OFFSET_ENTRY: Final = struct.Struct(">II")
TIME_ENTRY: Final = struct.Struct(">qI")
_TIMESTAMP_BYTES: Final = 8
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""The largest distance of an offset from its segment's base: Kafka reads it as a signed number."""


class Column(Protocol):
    """One number of each entry, in file order; rising, so it can be bisected."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...


class PagedColumn:
    """A column of a sealed index, read page by page. CorruptSegmentError if its file is shorter."""

    __slots__ = ("_cache", "_count", "_entry", "_field", "_path")

    def __init__(
        self, cache: ReadCache, path: str, entry: struct.Struct, count: int, field: int
    ) -> None:
        self._cache = cache
        self._path = path
        self._entry = entry
        self._count = count
        self._field = field

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int, /) -> int:
        if not 0 <= index < self._count:
            raise IndexError(index)
        page, slot = divmod(index, PAGE_ENTRIES)
        content = self._cache.index_page(self._path, page, self._entry.size)
        value: int = unpack_entry(self._entry, content, slot, self._path)[self._field]
        return value


def unpack_entry(entry: struct.Struct, content: bytes, slot: int, path: str) -> tuple[int, ...]:
    """Return an entry of a page. CorruptSegmentError if somebody has cut the file off meanwhile."""
    if len(content) < (slot + 1) * entry.size:
        raise CorruptSegmentError(0, f"{path} has lost its end")
    return entry.unpack_from(content, slot * entry.size)


class IndexFile:
    """Columns `keys` and `values` over one file. The owner defines their meaning.

    Keys and values never decrease. The path changes when the segment is renamed for deletion.
    """

    __slots__ = ("_cache", "_disk", "_entry", "_file", "is_active", "keys", "path", "values")

    def __init__(
        self, disk: Disk, cache: ReadCache, path: str, entry: struct.Struct, file_size: int
    ) -> None:
        """Open as sealed; nothing is read before the first lookup."""
        self._disk = disk
        self._cache = cache
        self._entry = entry
        self._file: OpenFile | None = None
        self.path = path
        self.is_active = False
        self.keys: Column
        self.values: Column
        self._set_paged(file_size // entry.size)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.keys) * self._entry.size

    def entry(self, index: int) -> tuple[int, int]:
        return self.keys[index], self.values[index]

    def append(self, key: int, value: int) -> None:
        """Add an entry to an active index, in memory and in the file."""
        keys, values = self.keys, self.values
        if not (isinstance(keys, array) and isinstance(values, array)):
            violated("{}: entries change in a sealed index", self.path)
        if self._file is None:
            self._file = OpenFile(self._disk, self._disk.open_write(self.path))
        write_fully(
            self._disk, self._file.fd, self._entry.pack(key, value), len(keys) * self._entry.size
        )
        keys.append(key)
        values.append(value)

    def activate(self) -> None:
        """Bring the entries into memory so that more can be appended."""
        if self.is_active:
            return
        keys, values = read_columns(self._disk, self.path, self._entry, len(self.keys))
        self._cache.forget_index(self.path)
        self.keys, self.values, self.is_active = keys, values, True

    def take_over(self, before: "IndexFile") -> None:
        """Take the entries of an active index, all of which this file has, too.

        The file is opened, so that the next flush makes the entries durable that were copied last.
        """
        self._file = OpenFile(self._disk, self._disk.open_write(self.path))
        self.keys, self.values, self.is_active = before.keys, before.values, before.is_active

    def seal(self) -> None:
        """Free the memory and read pages from now on: no entry will follow."""
        if not self.is_active:
            return
        if self._file is None:
            # An index without entries needs a file, too: a missing file means damage.
            self._file = OpenFile(self._disk, self._disk.open_write(self.path))
        self._file = None
        self._set_paged(len(self.keys))

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries of an active index."""
        keys, values = self.keys, self.values
        if not (isinstance(keys, array) and isinstance(values, array)):
            violated("{}: entries change in a sealed index", self.path)
        if count >= len(keys):
            return
        if self._file is None:
            self._file = OpenFile(self._disk, self._disk.open_write(self.path))
        self._disk.truncate(self._file.fd, count * self._entry.size)
        del keys[count:]
        del values[count:]

    def reload(self, count: int) -> None:
        """Use the file again after it was rewritten with `count` entries."""
        self._file = None
        self._cache.forget_index(self.path)
        was_active = self.is_active
        self._set_paged(count)
        if was_active:
            self.activate()

    def writer(self) -> OpenFile | None:
        """Return the descriptor that un-synced entries were written through, if still open."""
        return self._file

    def forget(self) -> None:
        """Close the file and drop its pages from the cache."""
        self._file = None
        self._cache.forget_index(self.path)

    def _set_paged(self, count: int) -> None:
        self.keys = PagedColumn(self._cache, self.path, self._entry, count, 0)
        self.values = PagedColumn(self._cache, self.path, self._entry, count, 1)
        self.is_active = False


def read_columns(
    disk: Disk, path: str, entry: struct.Struct, count: int
) -> tuple["array[int]", "array[int]"]:
    """Return the first `count` entries of an index file, or fewer, as two arrays."""
    content = b""
    if count:
        fd = disk.open_read(path)
        try:
            content = disk.pread(fd, count * entry.size, 0)
        finally:
            disk.close(fd)
    return _columns(content[: len(content) - len(content) % entry.size], entry)


def _columns(content: bytes, entry: struct.Struct) -> tuple["array[int]", "array[int]"]:
    """Return the keys and values of whole entries.

    This is done a column at a time: after a start each log reads its active index before its first
    append, and one entry after the other takes ten times as long.
    """
    words = array("I", content)
    if entry.size == OFFSET_ENTRY.size:
        return _native(words[0::2]), _native(words[1::2])
    keys = array("I", bytes(len(words) // 3 * _TIMESTAMP_BYTES))
    keys[0::2], keys[1::2] = words[0::3], words[1::3]
    return _native(array("q", keys.tobytes())), _native(words[2::3])


def _native(column: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        column.byteswap()
    return column


def write_index(disk: Disk, path: str, content: Buffer) -> None:
    """Write a rebuilt index, and replace the existing file."""
    unlink_if_present(disk, path)
    file = OpenFile(disk, disk.open_write(path))
    write_fully(disk, file.fd, content, 0)
