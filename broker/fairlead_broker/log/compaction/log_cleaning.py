"""Compacting the segments of one log into new files; plain code over `Disk`.

There are two passes. The first walks the dirty part and notes the newest offset of each key, until
the map is full: a cleaning covers the dirty batches whose keys fit, and the next one goes on from
there. The second pass rewrites the log from its start, group by group, into `<base>.log.cleaned`
with its indexes, and makes them durable. It changes no existing file. The event loop replaces the
segments (`segment_swap`), in the order of the groups, so that a key's old value is removed before
its tombstone.

This runs in a child process (`cleaner_worker`), because it keeps the interpreter busy. Memory is
bounded by the map, one batch, and the index entries of one segment.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Final

from fairlead_broker.disk import Disk, unlink_if_present, write_fully
from fairlead_broker.limits import CLEANER_BATCH_BYTES_MAX
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError, scan_batches
from fairlead_broker.log.batches.keyed_records import UnreadableRecordsError, unpack_body
from fairlead_broker.log.compaction.aborted_batches import AbortedBatches
from fairlead_broker.log.compaction.batch_cleaning import (
    BatchCleaning,
    CleaningCounts,
    read_keyed_records,
)
from fairlead_broker.log.compaction.cleaning_plan import SegmentFacts, group_segments, room_needed
from fairlead_broker.log.compaction.last_markers import LastMarkers
from fairlead_broker.log.compaction.offset_map import OffsetMap
from fairlead_broker.log.files.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from fairlead_broker.log.index.index_builder import IndexBuilder
from fairlead_broker.log.index.index_file import write_index
from fairlead_broker.log.index.transaction_index import (
    AbortedTransaction,
    decode_aborted,
    encode_aborted,
)
from fairlead_wire.record_batch import BatchHeader
from fairlead_wire.segments import Buffer

WRITE_BYTES: Final = 1 << 20
"""Bytes that are written at once; after each the kernel is asked to begin write-back."""
SALT_BYTES: Final = 16
POSITION_MAX: Final = 2**31 - 1


class UncleanableLogError(Exception):
    """The log cannot be compacted until an operator repairs it; the text says why."""


class NoRoomError(Exception):
    """The disk has no room for old and new files at once; the text has both figures."""


def check_room(disk: Disk, directory: str, group: list[SegmentFacts]) -> None:
    """Raise NoRoomError if the disk has too little room to rewrite a group. OSError."""
    needed, free = room_needed(group), disk.bytes_free(directory)
    if free < needed:
        raise NoRoomError(
            f"{free} bytes are free, and compaction from offset {group[0].base_offset} on asks for"
            f" {needed}"
        )


@dataclass(frozen=True, slots=True)
class CleaningOrder:
    """What to compact; see `cleaning_plan`.

    `last_offsets`, `last_epochs` and `unsettled_producers` are the `ProducerTraces`.
    `transaction_indexes` are base offset and size of all transaction indexes from the first of the
    segments on: a marker after the last segment may have aborted records in these segments.
    """

    directory: str
    segments: list[SegmentFacts]
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    last_offsets: list[tuple[int, int]] = field(default_factory=list)
    io_bytes_per_second: float = float("inf")
    log_start_offset: int = 0
    transaction_indexes: list[tuple[int, int]] = field(default_factory=list)
    last_epochs: list[tuple[int, int]] = field(default_factory=list)
    unsettled_producers: list[int] = field(default_factory=list)


NO_MARKER: Final = -1


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """New files, complete and durable as `.cleaned`, for the segments with `source_bases`.

    `last_marker_removed` is the offset of the last marker that the new files do not have any more.
    """

    source_bases: list[int]
    size: int
    index_size: int
    time_index_size: int
    transaction_index_size: int = 0
    last_marker_removed: int = NO_MARKER

    @property
    def base_offset(self) -> int:
        return self.source_bases[0]


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """The result of one cleaning. Below `end_offset` the log is clean."""

    end_offset: int
    keys: int
    read_bytes: int
    written_bytes: int
    source_bytes: int
    counts: CleaningCounts


class LogCleaning:
    """One cleaning. It calls `on_bytes` for bytes read and written, `on_group` for each group."""

    def __init__(
        self,
        disk: Disk,
        order: CleaningOrder,
        *,
        on_group: Callable[[CleanedGroup], None],
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._disk = disk
        self._order = order
        self._on_group = on_group
        self._on_bytes = on_bytes
        self._read_bytes = 0
        self._written_bytes = 0
        self._source_bytes = 0
        self._aborted = AbortedBatches(())
        self._unsettled = frozenset(order.unsettled_producers)
        self._last_markers = LastMarkers(dict(order.last_epochs), self._unsettled)

    def run(self) -> CleaningReport:
        """Clean the log. `.cleaned` files may remain after any error.

        UncleanableLogError, NoRoomError (groups that were replaced before stay so), or OSError if
        the disk fails.
        """
        order = self._order
        self._aborted = AbortedBatches(self._read_aborted(order.transaction_indexes))
        newest, end_offset = self._map_keys()
        cleaning = BatchCleaning(
            newest,
            end_offset=end_offset,
            start_offset=order.log_start_offset,
            now_ms=order.now_ms,
            delete_retention_ms=order.delete_retention_ms,
            last_offsets=dict(order.last_offsets),
            unsettled=self._unsettled,
            aborted=self._aborted,
            last_markers=self._last_markers,
        )
        groups = group_segments(
            [segment for segment in order.segments if segment.base_offset < end_offset],
            segment_bytes=order.segment_bytes,
            segment_index_bytes=order.segment_index_bytes,
        )
        for group in groups:
            check_room(self._disk, order.directory, group)
            cleaned = self._clean_group(group, cleaning, end_offset)
            if cleaned is not None:
                self._on_group(cleaned)
        return CleaningReport(
            end_offset,
            len(newest),
            self._read_bytes,
            self._written_bytes,
            self._source_bytes,
            cleaning.counts,
        )

    def _read_aborted(self, indexes: list[tuple[int, int]]) -> Iterator[AbortedTransaction]:
        for base_offset, size in indexes:
            fd = self._disk.open_read(self._path(base_offset, TRANSACTION_INDEX_SUFFIX))
            try:
                yield from decode_aborted(self._disk.pread(fd, size, 0))
            finally:
                self._disk.close(fd)

    def _map_keys(self) -> tuple[OffsetMap, int]:
        """Return the map, and the offset after the last batch that is in it."""
        order = self._order
        dirty = [s for s in order.segments if s.next_base_offset > order.first_dirty_offset]
        newest: OffsetMap | None = None
        end_offset = order.segments[-1].next_base_offset
        for segment in dirty:
            for position, header, batch in self._batches(segment):
                # A log may start inside a batch. If it is dirty from there on, all of it is mapped.
                if header.last_offset < order.first_dirty_offset:
                    continue
                if header.is_control:
                    self._last_markers.note(header)
                    continue
                if self._aborted.has(header):
                    continue
                is_first = newest is None
                if newest is None:
                    newest = self._new_map(header.base_offset)
                if not self._map_batch(newest, segment, position, header, batch):
                    if is_first:
                        raise UncleanableLogError(
                            f"the keys of one batch need more than {newest.capacity} entries;"
                            " raise log.cleaner.dedupe.buffer.size"
                        )
                    return newest, header.base_offset
        return self._new_map(end_offset) if newest is None else newest, end_offset

    def _new_map(self, first_offset: int) -> OffsetMap:
        """Return a map with room for every later record: too much if many were compacted."""
        order = self._order
        return OffsetMap(
            keys_expected=order.segments[-1].next_base_offset - first_offset,
            bytes_max=order.dedupe_buffer_bytes,
            salt=token_bytes(SALT_BYTES),
        )

    def _map_batch(
        self,
        newest: OffsetMap,
        segment: SegmentFacts,
        position: int,
        header: BatchHeader,
        batch: memoryview,
    ) -> bool:
        """Note the keys of a batch; False if they do not all fit.

        The keys that fit stay noted. Older records with these keys may be removed, because this
        batch is kept unchanged.
        """
        base_offset, put = header.base_offset, newest.put
        try:
            for _, _, key, _, delta in read_keyed_records(header, unpack_body(header, batch)):
                if key is not None and not put(key, base_offset + delta):
                    return False
        except UnreadableRecordsError as error:
            raise self._uncleanable(segment, position, error) from error
        return True

    def _clean_group(
        self, group: list[SegmentFacts], cleaning: BatchCleaning, end_offset: int
    ) -> CleanedGroup | None:
        """Return the new files for a group of segments; None if they would not differ.

        The new transaction index leaves out aborted transactions that ended below `end_offset`: no
        record of them remains, so readers do not need to know of them.
        """
        base_offset = group[0].base_offset
        output = _Output(self._disk, self._order.directory, base_offset, self._wrote)
        builder = IndexBuilder(base_offset, self._order.index_interval_bytes)
        is_same, last_marker_removed = len(group) == 1, NO_MARKER
        last = next((segment for segment in reversed(group) if segment.size), group[-1])
        try:
            for segment in group:
                self._source_bytes += segment.size
                for position, header, batch in self._batches(segment):
                    is_last = segment is last and position + header.size == segment.size
                    try:
                        cleaned = cleaning.clean(header, batch, is_last=is_last)
                    except UnreadableRecordsError as error:
                        raise self._uncleanable(segment, position, error) from error
                    if cleaned is None:
                        is_same = False
                        if header.is_control:
                            last_marker_removed = header.base_offset
                        continue
                    is_same &= cleaned.data is batch
                    if output.size + cleaned.header.size > POSITION_MAX:
                        raise UncleanableLogError(f"segment {base_offset} would grow over 2 GiB")
                    builder.add(output.size, cleaned.header)
                    output.append(cleaned.data)
            if is_same:
                output.discard()
                return None
            builder.finish()
            output.finish()
            # Retention uses this time for records without timestamps, so it must not be the current
            # time.
            newest = self._disk.modified_ms(self._path(last.base_offset, LOG_SUFFIX))
            output.set_modified_ms(newest)
        finally:
            output.close()
        bases = {segment.base_offset for segment in group}
        own = [each for each in self._order.transaction_indexes if each[0] in bases]
        aborts = b"".join(
            encode_aborted(each)
            for each in self._read_aborted(own)
            if each.last_offset >= end_offset
        )
        self._write_indexes(base_offset, builder, aborts)
        return CleanedGroup(
            [segment.base_offset for segment in group],
            output.size,
            len(builder.offset_index),
            len(builder.time_index),
            len(aborts),
            last_marker_removed,
        )

    def _write_indexes(self, base_offset: int, builder: IndexBuilder, aborts: bytes) -> None:
        """Write the indexes of new files durably; the transaction index only if it has entries."""
        for suffix, content in (
            (INDEX_SUFFIX, builder.offset_index),
            (TIME_INDEX_SUFFIX, builder.time_index),
            (TRANSACTION_INDEX_SUFFIX, aborts),
        ):
            if suffix == TRANSACTION_INDEX_SUFFIX and not content:
                continue
            path = self._path(base_offset, suffix) + CLEANED_SUFFIX
            write_index(self._disk, path, content)
            fd = self._disk.open_read(path)
            try:
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)

    def _batches(self, segment: SegmentFacts) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield the batches of a segment after checking each one, and report progress."""
        fd = self._disk.open_read(self._path(segment.base_offset, LOG_SUFFIX))
        told = next_offset = 0
        try:
            for position, header, batch in scan_batches(
                self._disk, fd, 0, segment.size, batch_bytes_max=CLEANER_BATCH_BYTES_MAX
            ):
                # No CRC covers the base offset. A log's first batch may begin below its base.
                first, last = header.base_offset, header.last_offset
                is_within = segment.base_offset <= last < segment.next_base_offset
                if first < next_offset or not is_within:
                    raise CorruptSegmentError(position, f"offset {header.base_offset} does not fit")
                next_offset = header.next_offset
                yield position, header, batch
                end = position + header.size
                if end - told >= WRITE_BYTES or end == segment.size:
                    self._read_bytes += end - told
                    self._on_bytes(end - told)
                    told = end
        except CorruptSegmentError as error:
            raise self._uncleanable(segment, error.position, error) from error
        finally:
            self._disk.close(fd)

    def _wrote(self, size: int) -> None:
        self._written_bytes += size
        self._on_bytes(size)

    def _uncleanable(
        self, segment: SegmentFacts, position: int, error: Exception
    ) -> UncleanableLogError:
        reason = error.reason if isinstance(error, CorruptSegmentError) else str(error)
        name = offset_name(segment.base_offset) + LOG_SUFFIX
        return UncleanableLogError(f"{name} position {position}: {reason}")

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._order.directory}/{offset_name(offset)}{suffix}"


class _Output:
    """A `.cleaned` file that is written in large pieces."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, on_written: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._on_written = on_written
        self._path = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}{CLEANED_SUFFIX}"
        unlink_if_present(disk, self._path)
        self._fd = disk.open_write(self._path)
        self._parts: list[Buffer] = []
        self._pending = 0
        self.size = 0

    def append(self, data: Buffer) -> None:
        # A copy, because a view would keep its whole chunk of the source in memory.
        self._parts.append(bytes(data))
        self._pending += len(data)
        self.size += len(data)
        if self._pending >= WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        """Write the rest; everything is on the device when this returns."""
        if self._pending:
            self._write()
        self._disk.fsync(self._fd)

    def set_modified_ms(self, time_ms: int) -> None:
        self._disk.set_modified_ms(self._path, time_ms)

    def discard(self) -> None:
        self._disk.unlink(self._path)

    def close(self) -> None:
        self._disk.close(self._fd)

    def _write(self) -> None:
        position = self.size - self._pending
        write_fully(self._disk, self._fd, b"".join(self._parts), position)
        # In small steps: too many dirty pages would stall the broker's own writes.
        self._disk.start_write_out(self._fd, position, self._pending)
        self._on_written(self._pending)
        self._parts.clear()
        self._pending = 0
