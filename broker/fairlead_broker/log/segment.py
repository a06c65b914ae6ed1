"""One segment of a log: a `.log` file with its indexes.

Only the last segment of a log, the active one, is written; the others are sealed. A segment tracks
its own size and writes at that position with `pwrite` through a descriptor that nothing else uses;
readers get another one (see `file_slice`). Bytes after `size` in the file are not part of the log:
they can only be the rest of a failed write.
"""

import errno
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress

from fairlead_broker.disk import Disk, unlink_if_present, write_fully
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError, walk_headers
from fairlead_broker.log.files.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from fairlead_broker.log.files.file_slice import OpenFile, SegmentFile
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.log.index.index_builder import IndexBuilder, check_offset
from fairlead_broker.log.index.index_file import OFFSET_ENTRY, TIME_ENTRY, IndexFile, write_index
from fairlead_broker.log.index.index_sanity import batches_fit, ends_fit, offset_ends_fit
from fairlead_broker.log.index.transaction_index import TransactionIndex
from fairlead_model.invariants import require
from fairlead_wire.record_batch import NO_TIMESTAMP, BatchHeader
from fairlead_wire.segments import Buffer

logger = logging.getLogger(__name__)


class Segment:
    """One segment: writing, reading, damaged indexes, closing.

    Invariants: index keys and values rise; every indexed position starts a batch below `size`.

    `max_timestamp` and `max_timestamp_offset` (last offset of the first batch that carries it)
    cover the whole segment. `indexed_position` is the position of the newest offset index entry.
    """

    __slots__ = (
        "_cache",
        "_disk",
        "_is_checked",
        "_is_doubted",
        "_reader",
        "_write_fd",
        "_writer",
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp",
        "index_bytes_max",
        "index_interval_bytes",
        "indexed_position",
        "is_index_full",
        "is_sealed",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        cache: ReadCache,
        directory: str,
        base_offset: int,
        *,
        size: int = 0,
        index_size: int = 0,
        time_index_size: int = 0,
        transaction_index_size: int = 0,
        index_interval_bytes: int,
        index_bytes_max: int,
        created_ms: int = 0,
        suffix: str = "",
    ) -> None:
        """Open a sealed segment of known file sizes; `activate` makes it the one that is written.

        Its files have a working `suffix` while they replace others.
        """
        stem = f"{directory}/{offset_name(base_offset)}"
        self._disk = disk
        self._cache = cache
        self._writer: OpenFile | None = None
        self._write_fd = -1
        self._reader: SegmentFile | None = None
        self._is_checked = False
        self._is_doubted = False
        self.directory = directory
        self.base_offset = base_offset
        self.path = stem + LOG_SUFFIX + suffix
        self.size = size
        index_path, time_path = stem + INDEX_SUFFIX + suffix, stem + TIME_INDEX_SUFFIX + suffix
        self.offset_index = IndexFile(disk, cache, index_path, OFFSET_ENTRY, index_size)
        self.time_index = IndexFile(disk, cache, time_path, TIME_ENTRY, time_index_size)
        self.transaction_index = TransactionIndex(
            disk, cache, stem + TRANSACTION_INDEX_SUFFIX + suffix, transaction_index_size
        )
        self.index_interval_bytes = index_interval_bytes
        self.index_bytes_max = index_bytes_max
        self.is_index_full = False
        self.created_ms = created_ms
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.indexed_position = 0
        self.is_sealed = True

    @classmethod
    def create(
        cls,
        disk: Disk,
        cache: ReadCache,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_bytes_max: int,
        created_ms: int,
    ) -> "Segment":
        """Return a new, empty, active segment; its three files exist from now on.

        OSError if the disk refuses. Then none of the files stays: the segment before goes on, and
        would grow past the base offset of this one.
        """
        segment = cls(
            disk,
            cache,
            directory,
            base_offset,
            index_interval_bytes=index_interval_bytes,
            index_bytes_max=index_bytes_max,
            created_ms=created_ms,
        )
        segment._is_checked = True
        segment.is_sealed = False
        try:
            segment.open_writer()
            for index in (segment.offset_index, segment.time_index):
                write_index(disk, index.path, b"")
                index.activate()
        except OSError:
            for path in (segment.path, segment.offset_index.path, segment.time_index.path):
                unlink_if_present(disk, path)
            raise
        return segment

    def append(self, data: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch of `size` bytes at the end. OSError if the disk refuses."""
        position = self.size
        written = self._disk.pwrite(self._write_fd, data, position)
        if written != size:
            write_fully(self._disk, self._write_fd, memoryview(data)[written:], position + written)
        self.note_batch(position, size, last_offset, max_timestamp)

    def append_many(self, data: Buffer, headers: list[BatchHeader]) -> None:
        """Write several adjacent batches with one call."""
        position = self.size
        write_fully(self._disk, self._write_fd, data, position)
        for header in headers:
            self.note_batch(position, header.size, header.last_offset, header.max_timestamp)
            position += header.size

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Count a batch that was written at `position`, and index it if an entry is due."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
            if self.first_timestamp == NO_TIMESTAMP:
                self.first_timestamp = max_timestamp
        if position - self.indexed_position > self.index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.indexed_position = position
            self.append_time_entry()
            self._note_index_size()
        self.size = position + size

    def _note_index_size(self) -> None:
        """Note whether an index is full; the time index keeps room for the last entry of `seal`."""
        index_bytes_max = self.index_bytes_max
        self.is_index_full = (
            self.offset_index.size + OFFSET_ENTRY.size > index_bytes_max
            or self.time_index.size + 2 * TIME_ENTRY.size > index_bytes_max
        )

    def append_time_entry(self) -> None:
        """Note the largest timestamp so far, if it is larger than the last one noted."""
        timestamps = self.time_index.keys
        if self.max_timestamp >= 0 and (
            not len(timestamps) or self.max_timestamp > timestamps[len(timestamps) - 1]
        ):
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def open_writer(self) -> None:
        """Open the writing descriptor; it stays with this segment until it is sealed and synced."""
        if self._writer is None:
            self._writer = OpenFile(self._disk, self._disk.open_write(self.path))
            self._write_fd = self._writer.fd

    def activate(self) -> None:
        """Make a loaded segment writable: indexes into memory, writer open."""
        self.ensure_index_is_sane()
        self.offset_index.activate()
        self.time_index.activate()
        count = len(self.offset_index)
        self.indexed_position = self.offset_index.values[count - 1] if count else 0
        self.restore_timestamps()
        self._cache.forget_file(self.path)
        self.open_writer()
        self.is_sealed = False
        self._note_index_size()
        if not len(self.offset_index):
            self.is_index_full = False

    def take_over(self, before: "Segment") -> None:
        """Replace an active segment, whose bytes are in this one's files.

        Nothing is read: all that is known about that segment is true for this one, too.
        """
        self.offset_index.take_over(before.offset_index)
        self.time_index.take_over(before.time_index)
        self.transaction_index.open_writer()
        self.open_writer()
        self.is_sealed = False
        self._is_checked = before._is_checked
        self.is_index_full = before.is_index_full
        self.first_timestamp = before.first_timestamp
        self.max_timestamp = before.max_timestamp
        self.max_timestamp_offset = before.max_timestamp_offset
        self.indexed_position = before.indexed_position

    def seal(self) -> None:
        """Close both indexes with a last time entry. The writer stays open for the flush."""
        self.append_time_entry()
        self.is_sealed = True
        # From now on the read descriptor is one of the bounded number that the cache keeps.
        self._reader = None

    def writers(self) -> list[OpenFile]:
        """Return the descriptors that are open for writing, for a flush."""
        files = (
            self._writer,
            self.offset_index.writer(),
            self.time_index.writer(),
            self.transaction_index.writer(),
        )
        return [file for file in files if file is not None]

    def release_writers(self) -> None:
        """Release the writers after a flush of a sealed segment: it is not written again."""
        require(self.is_sealed, "released the writers of active segment {}", self.path)
        self._writer, self._write_fd = None, -1
        self.offset_index.seal()
        self.time_index.seal()
        self.transaction_index.seal()

    def truncate(self, position: int) -> None:
        """Cut the file and its indexes at a batch boundary; the segment must be active.

        OSError also if a batch before the cut is damaged: nothing can be appended after that.
        """
        self._disk.truncate(self._write_fd, position)
        self.size = position
        try:
            self._truncate_indexes(position)
        except CorruptSegmentError as error:
            raise OSError(errno.EIO, str(error)) from error

    def _truncate_indexes(self, position: int) -> None:
        count = bisect_left(self.offset_index.values, position)
        self.offset_index.truncate(count)
        self.indexed_position = self.offset_index.values[count - 1] if count else 0
        next_offset = self.next_offset_after(self.indexed_position)
        next_relative = next_offset - self.base_offset
        self.time_index.truncate(bisect_left(self.time_index.values, next_relative))
        self.transaction_index.truncate(next_offset)
        self.restore_timestamps()

    @property
    def file(self) -> SegmentFile:
        """The read-only descriptor, for slices and for reads of the broker itself."""
        if self._reader is None:
            if self.is_sealed:
                return self._cache.segment_file(self.path)
            self._reader = SegmentFile(self._disk, self.path)
        return self._reader

    def find_batch(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the first batch that ends at or above `offset`."""
        self.ensure_index_is_sane()
        keys, values = self.offset_index.keys, self.offset_index.values
        at = bisect_right(keys, offset - self.base_offset)
        start = values[at - 1] if at else 0
        if at < len(keys):
            # Sequential readers ask for the first offset of an indexed batch, whose entry has its
            # last offset. Checking that batch saves the walk from the entry before. The entry may
            # also have the last offset of several batches, as Kafka wrote it before 4.0.
            for position, header in self.headers(values[at]):
                if header.base_offset <= offset <= header.last_offset:
                    return position, header
                break
        for position, header in self.headers(start):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return None

    def headers(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield each batch from a batch boundary on."""
        return walk_headers(
            self._disk, self.file.read_fd, position, self.size if end is None else end
        )

    def boundary_at_or_below(self, start: int, limit: int) -> int:
        """Return the last known batch boundary in [start, limit], by the index or a short walk.

        `start` must be a boundary. If the index gives the answer, it may be an index interval short
        of the best one; a walk to that one would cost more than it gains. A walk ends before a
        damaged batch: what lies before it is intact. CorruptSegmentError if the first one is.
        """
        self.ensure_index_is_sane()
        values = self.offset_index.values
        at = bisect_right(values, limit)
        if at and values[at - 1] > start:
            return values[at - 1]
        boundary = start
        try:
            for position, header in self.headers(start):
                if position + header.size > limit:
                    break
                boundary = position + header.size
        except CorruptSegmentError:
            if boundary == start:
                raise
        return boundary

    def next_offset_after(self, position: int) -> int:
        """Return the offset after the last batch, by a walk from a boundary; the base if none."""
        next_offset = self.base_offset
        for at, header in self.headers(position):
            check_offset(at, header, self.base_offset)
            next_offset = header.next_offset
        return next_offset

    def end_offset(self) -> int:
        """Return the offset after the last batch, by the last index entry and a walk."""
        self.ensure_index_is_sane()
        count = len(self.offset_index)
        return self.next_offset_after(self.offset_index.values[count - 1] if count else 0)

    def restore_timestamps(self) -> None:
        """Find the largest timestamp again: last time index entry, then the unindexed tail."""
        count = len(self.time_index)
        self.max_timestamp, relative = (
            self.time_index.entry(count - 1) if count else (NO_TIMESTAMP, 0)
        )
        self.max_timestamp_offset = self.base_offset + relative
        for _, header in self.headers(self.indexed_position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        self.first_timestamp = NO_TIMESTAMP
        try:
            for _, header in self.headers(0):
                self.first_timestamp = header.max_timestamp
                break
        except CorruptSegmentError as error:
            # It only decides when to roll, which then depends on the clock.
            logger.warning("%s: the age of its records is not known: %s", self.path, error)

    def largest_timestamp(self) -> int:
        """Return the largest timestamp, -1 if none; for a sealed segment, its last time entry's."""
        if self.is_sealed and self.max_timestamp == NO_TIMESTAMP:
            self.ensure_index_is_sane()
            count = len(self.time_index)
            if count:
                self.max_timestamp, relative = self.time_index.entry(count - 1)
                self.max_timestamp_offset = self.base_offset + relative
        return self.max_timestamp

    def modified_ms(self) -> int:
        """Return when the file last changed, which counts where records carry no timestamps."""
        return self._disk.modified_ms(self.path)

    def ensure_index_is_sane(self) -> None:
        """Rebuild indexes that do not fit this segment, before the first lookup.

        If a batch is damaged, an offset index that cannot be right has the batches before that one,
        and the error is raised. With the wrong entries a later lookup might start behind the end of
        the segment, and a reader would be given the next segment instead of an error.
        """
        if self._is_checked:
            return
        self._is_checked = True
        if not ends_fit(self):
            is_wrong = not offset_ends_fit(self)
            try:
                self.rebuild_indexes()
            except CorruptSegmentError:
                if is_wrong:
                    self._index_up_to_damage()
                raise
        elif not batches_fit(self):
            try:
                self.rebuild_indexes()
            except CorruptSegmentError as error:
                logger.warning("%s is damaged, its indexes stay as they are: %s", self.path, error)

    def doubt_indexes(self) -> None:
        """Rebuild indexes that led to no intact batch, but only once.

        If the batch itself is damaged, new indexes do not help, and to read the whole segment for
        them blocks the loop.
        """
        if not self._is_doubted:
            self._is_doubted = True
            self.rebuild_indexes()

    def has_ragged_index(self, index_size: int, time_index_size: int) -> bool:
        """Return True if an index file is no whole number of entries."""
        return index_size % OFFSET_ENTRY.size != 0 or time_index_size % TIME_ENTRY.size != 0

    def rebuild_indexes(self) -> None:
        """Write both indexes anew from the batch headers."""
        builder = IndexBuilder(self.base_offset, self.index_interval_bytes)
        for position, header in self.headers():
            builder.add(position, header)
        builder.finish()
        for index, content, entry_size in (
            (self.offset_index, builder.offset_index, OFFSET_ENTRY.size),
            (self.time_index, builder.time_index, TIME_ENTRY.size),
        ):
            write_index(self._disk, index.path, content)
            index.reload(len(content) // entry_size)
        self.indexed_position = builder.indexed_position
        logger.info("%s: its indexes were built anew", self.path)

    def _index_up_to_damage(self) -> None:
        """Replace the offset index; the time index stays: retention needs the newest timestamp."""
        builder = IndexBuilder(self.base_offset, self.index_interval_bytes)
        with suppress(CorruptSegmentError):
            for position, header in self.headers():
                builder.add(position, header)
        write_index(self._disk, self.offset_index.path, builder.offset_index)
        self.offset_index.reload(len(builder.offset_index) // OFFSET_ENTRY.size)
        logger.warning("%s is damaged, its index ends before that", self.path)

    def mark_deleted(self, suffix: str = DELETED_SUFFIX) -> list[str]:
        """Rename all files by `suffix` and close them; return the paths to unlink later.

        Files are renamed now and unlinked later: after a crash in between, the next start removes
        them. Slices that are being sent keep their descriptor.
        """
        self._writer, self._write_fd, self._reader = None, -1, None
        self.is_sealed = True
        self._cache.forget_file(self.path)
        self.offset_index.forget()
        self.time_index.forget()
        self.transaction_index.forget()
        stem = self.path.removesuffix(LOG_SUFFIX)
        deleted = []
        for kind in SEGMENT_SUFFIXES:
            path = stem + kind
            if kind == LOG_SUFFIX or self._disk.exists(path):
                self._disk.rename(path, path + suffix)
                deleted.append(path + suffix)
        return deleted

    def remove(self, suffix: str) -> None:
        """Remove all files now, also those that `mark_deleted` has renamed already."""
        stem = self.path.removesuffix(LOG_SUFFIX)
        for kind in SEGMENT_SUFFIXES:
            for path in (stem + kind, stem + kind + suffix):
                unlink_if_present(self._disk, path)

    def close(self) -> None:
        """Close all descriptors; the files stay as they are."""
        self._writer, self._write_fd, self._reader = None, -1, None
        self._cache.forget_file(self.path)
        self.offset_index.forget()
        self.time_index.forget()
        self.transaction_index.forget()
