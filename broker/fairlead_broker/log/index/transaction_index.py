"""`.txnindex` of a segment: the transactions that its abort markers ended.

Layout, big-endian, 34 bytes an entry: version i16 = 0, producer_id i64, first_offset i64,
last_offset i64 (of the marker), last_stable_offset i64 (after this transaction ended, as if its
marker was committed). Last offsets rise. The file is created with the first entry, so most segments
have none. The format is Kafka's (`TransactionIndex`, `AbortedTxn`), so Kafka's tools can read it.
"""

import logging
import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from fairlead_broker.disk import Disk, unlink_if_present, write_fully
from fairlead_broker.log.files.file_slice import OpenFile
from fairlead_broker.log.files.read_cache import PAGE_ENTRIES, ReadCache
from fairlead_broker.log.index.index_file import PagedColumn, unpack_entry, write_index

logger = logging.getLogger(__name__)

TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_LAST_OFFSET_FIELD: Final = 3


class AbortedTransaction(NamedTuple):
    """One entry. A read up to `last_stable_offset` at most needs no entry of a later marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, read page by page through the shared cache."""

    __slots__ = ("_cache", "_count", "_disk", "_file", "path")

    def __init__(self, disk: Disk, cache: ReadCache, path: str, file_size: int) -> None:
        self._disk = disk
        self._cache = cache
        self._count = file_size // TRANSACTION_ENTRY.size
        self._file: OpenFile | None = None
        self.path = path

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._count * TRANSACTION_ENTRY.size

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker was just written. OSError."""
        if self._file is None:
            self._file = OpenFile(self._disk, self._disk.open_write(self.path))
        write_fully(self._disk, self._file.fd, encode_aborted(aborted), self.size)
        # The cache may have the entry's page from when it was shorter.
        self._cache.forget_page(self.path, self._count // PAGE_ENTRIES)
        self._count += 1

    def entries_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield transactions whose marker is at or above an offset, in the order of markers."""
        for fields in self._entries(bisect_left(self._last_offsets(), offset)):
            yield AbortedTransaction._make(fields[1:])

    def truncate(self, end_offset: int) -> None:
        """Forget transactions whose marker is at or above the new end of the log. OSError."""
        kept = bisect_left(self._last_offsets(), end_offset)
        if kept == self._count:
            return
        if self._file is None:
            self._file = OpenFile(self._disk, self._disk.open_write(self.path))
        self._disk.truncate(self._file.fd, kept * TRANSACTION_ENTRY.size)
        self._cache.forget_index(self.path)
        self._count = kept

    def replace(self, content: bytes) -> None:
        """Replace all entries durably by entries that were derived again. OSError."""
        self.forget()
        if content:
            write_index(self._disk, self.path, content)
            file = OpenFile(self._disk, self._disk.open_read(self.path))
            self._disk.fsync(file.fd)
        else:
            unlink_if_present(self._disk, self.path)
        self._count = len(content) // TRANSACTION_ENTRY.size

    def is_sane(self, file_size: int, base_offset: int) -> bool:
        """Tell whether all entries of the file can belong to this segment. OSError."""
        if file_size != self.size:
            return False
        least = base_offset
        for at, (version, *fields) in enumerate(self._entries(0)):
            aborted = AbortedTransaction._make(fields)
            is_possible = aborted.last_offset >= max(least, aborted.first_offset)
            if version != _VERSION or not is_possible:
                logger.warning("%s: entry %d is of version %d, %s", self.path, at, version, aborted)
                return False
            least = aborted.last_offset + 1
        return True

    def open_writer(self) -> None:
        """Open the file, so that the next flush makes copied entries durable."""
        if self._count:
            self._file = OpenFile(self._disk, self._disk.open_write(self.path))

    def writer(self) -> OpenFile | None:
        """Return the descriptor that un-synced entries were written through, if still open."""
        return self._file

    def seal(self) -> None:
        """Close the file: no entry will follow."""
        self._file = None

    def forget(self) -> None:
        """Close the file and drop its pages from the cache."""
        self._file = None
        self._cache.forget_index(self.path)

    def _entries(self, start: int) -> Iterator[tuple[int, ...]]:
        entry = TRANSACTION_ENTRY
        for at in range(start, self._count):
            page, slot = divmod(at, PAGE_ENTRIES)
            content = self._cache.index_page(self.path, page, entry.size)
            yield unpack_entry(entry, content, slot, self.path)

    def _last_offsets(self) -> PagedColumn:
        return PagedColumn(
            self._cache, self.path, TRANSACTION_ENTRY, self._count, _LAST_OFFSET_FIELD
        )


def decode_aborted(content: bytes) -> Iterator[AbortedTransaction]:
    """Yield the complete entries of a file."""
    size = TRANSACTION_ENTRY.size
    for fields in TRANSACTION_ENTRY.iter_unpack(content[: len(content) - len(content) % size]):
        yield AbortedTransaction._make(fields[1:])


def encode_aborted(aborted: AbortedTransaction) -> bytes:
    """Return an entry in the format of the file."""
    return TRANSACTION_ENTRY.pack(_VERSION, *aborted)
