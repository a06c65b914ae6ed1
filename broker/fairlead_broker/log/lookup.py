"""Finds bytes by offset, and offsets by timestamp, with the indexes and the batch headers."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from fairlead_broker.limits import (
    HURRIED_LOOKUP_BATCHES_MAX,
    LOOKUP_BATCHES_MAX,
    LOOKUP_DECOMPRESSED_MAX,
    WALKED_RECORDS_MAX,
)
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.batches.record_walk import walk_records
from fairlead_broker.log.files.file_slice import FileSlice
from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_broker.log.segment import Segment
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_wire.errors import KafkaError
from fairlead_wire.record_batch import NO_TIMESTAMP, BatchHeader


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class Arrival(Protocol):
    """A copy of records from a segment that is stored elsewhere; the first read has started it."""

    @property
    def is_over(self) -> bool:
        """True once another read of the same offset gives the outcome: the records, or an error."""
        ...

    def notify(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, in a later turn of the loop, when `is_over` has become true."""
        ...


class ReadResult(NamedTuple):
    """A slice of whole batches, the first of which holds `offset`; None if there are no records.

    With an `arrival` the records are not here yet: read again when it is over.
    """

    records: FileSlice | None
    offset: int
    arrival: Arrival | None = None


def read_indexed(
    log: SegmentedLog, offset: int, max_bytes: int, end_offset: int, *, minimum_one_batch: bool
) -> ReadResult:
    """Do `Log.read` by the indexes, for offsets below those of the recent batches."""
    found = find_batch(log, offset)
    if found is None:
        return ReadResult(None, offset)
    segment, start, header = found
    end = _end_position(log, segment, end_offset)
    if start >= end:
        return ReadResult(None, offset)
    if end - start > max_bytes:
        if header.size > max_bytes:
            end = start + header.size if minimum_one_batch else start
        else:
            end = min(end, _rebuilt_once(segment, start, start + max_bytes))
    if end <= start:
        return ReadResult(None, offset)
    return ReadResult(FileSlice(segment.file, start, end - start), offset)


def find_batch(log: SegmentedLog, offset: int) -> tuple[Segment, int, BatchHeader] | None:
    """Return segment, position and header of the first batch that ends at or above `offset`.

    That batch may be in a later segment: compaction leaves holes.
    """
    at = max(bisect_right(log.bases, offset) - 1, 0)
    for segment in log.segments[at:]:
        try:
            found = segment.find_batch(offset)
        except CorruptSegmentError:
            # Either the index is wrong, and is rebuilt here, or the batch itself is damaged, which
            # the second search reports.
            segment.doubt_indexes()
            found = segment.find_batch(offset)
        if found is not None:
            return segment, *found
    return None


def _end_position(log: SegmentedLog, segment: Segment, end_offset: int) -> int:
    """Return the position where those batches of a segment end that are below `end_offset`."""
    if end_offset >= log.log_end_offset:
        return segment.size
    found = find_batch(log, end_offset)
    if found is None or found[0] is not segment:
        return segment.size
    return found[1]


def _rebuilt_once(segment: Segment, start: int, limit: int) -> int:
    try:
        return segment.boundary_at_or_below(start, limit)
    except CorruptSegmentError:
        segment.doubt_indexes()
        return segment.boundary_at_or_below(start, limit)


def upper_offset(log: SegmentedLog, fetch_offset: int, records: FileSlice) -> int:
    """Return an offset at or above the end of what was read from `fetch_offset` on.

    It comes from the offset index and is at most one index interval too high, which is cheaper than
    a search for the exact one.
    """
    end = records.position + len(records)
    at = max(bisect_right(log.bases, fetch_offset) - 1, 0)
    for segment, next_base in zip(
        log.segments[at:], [*log.bases[at + 1 :], log.log_end_offset], strict=True
    ):
        if segment.file is not records.file:
            continue
        positions = segment.offset_index.values
        behind = bisect_left(positions, end)
        if behind < len(positions):
            return segment.base_offset + segment.offset_index.keys[behind] + 1
        return next_base
    return log.log_end_offset


def aborted_transactions(
    log: SegmentedLog, fetch_offset: int, upper_offset: int
) -> list[AbortedTransaction]:
    """Return transactions that ended at or above `fetch_offset` and began below `upper_offset`.

    A marker is in the segment of its offset, so older segments need not be read. If no transaction
    was open below `upper_offset` when one ended, markers after that one do not matter.
    """
    found = []
    at = max(bisect_right(log.bases, fetch_offset) - 1, 0)
    for segment in log.segments[at:]:
        if not segment.transaction_index.size:
            continue
        for aborted in segment.transaction_index.entries_from(fetch_offset):
            if aborted.first_offset < upper_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_offset:
                return found
    return found


def offset_for_timestamp(
    log: SegmentedLog, timestamp_ms: int, end_offset: int, *, is_hurried: bool
) -> TimestampOffset | None:
    """Return the first readable record at or after a timestamp, exact within batches.

    If the search would take too long, or `is_hurried`, the answer is an earlier record: a consumer
    then starts too early, never too late.
    """
    for segment in _segments_from_start(log):
        if segment.base_offset >= end_offset:
            return None
        if segment.largest_timestamp() >= timestamp_ms:
            found = _offset_in(log, segment, timestamp_ms, is_hurried=is_hurried)
            if found is not None:
                return found if found.offset < end_offset else None
    return None


def offset_of_max_timestamp(log: SegmentedLog, *, is_hurried: bool) -> TimestampOffset | None:
    """Return the first record that carries the log's largest timestamp, or an earlier one."""
    first, *others = _segments_from_start(log)
    largest, owner = first.largest_timestamp(), first
    for segment in others:
        timestamp = segment.largest_timestamp()
        if timestamp > largest:
            largest, owner = timestamp, segment
    if largest == NO_TIMESTAMP:
        return None
    found = _offset_in(log, owner, largest, is_hurried=is_hurried)
    if found is None and owner is first:
        # If the log starts inside this segment, its largest timestamp may be of a deleted record.
        return _newest_above_start(log, first, others, is_hurried=is_hurried)
    return found


def _segments_from_start(log: SegmentedLog) -> list[Segment]:
    """Return segments that may have a record; the next retention check deletes those below."""
    return log.segments[max(bisect_right(log.bases, log.log_start_offset) - 1, 0) :]


def _newest_above_start(
    log: SegmentedLog, first: Segment, others: list[Segment], *, is_hurried: bool
) -> TimestampOffset | None:
    """Do `offset_of_max_timestamp` if the first segment's index may count deleted records.

    If the log starts inside a batch, that batch's header may count deleted records, too: the batch
    is used only if no other follows.
    """
    cut: tuple[int, BatchHeader] | None = None
    newest: tuple[int, BatchHeader] | None = None
    largest = NO_TIMESTAMP
    batches_left = HURRIED_LOOKUP_BATCHES_MAX if is_hurried else LOOKUP_BATCHES_MAX
    found = first.find_batch(log.log_start_offset)
    for position, header in first.headers(first.size if found is None else found[0]):
        if header.base_offset < log.log_start_offset:
            cut = position, header
        elif header.max_timestamp > largest:
            newest, largest = (position, header), header.max_timestamp
        batches_left -= 1
        if batches_left <= 0:
            break
    later = max(others, key=Segment.largest_timestamp, default=None)
    if later is not None and later.largest_timestamp() > largest:
        return _offset_in(log, later, later.largest_timestamp(), is_hurried=is_hurried)
    if newest is not None:
        return _first_record(log, first, *newest, largest)
    return None if cut is None else _first_record(log, first, *cut, 0)


def _offset_in(
    log: SegmentedLog, segment: Segment, timestamp_ms: int, *, is_hurried: bool
) -> TimestampOffset | None:
    """Do `offset_for_timestamp` in one segment."""
    batches_left = HURRIED_LOOKUP_BATCHES_MAX if is_hurried else LOOKUP_BATCHES_MAX
    for position, header in _headers_from_timestamp(segment, timestamp_ms):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= log.log_start_offset:
            if is_hurried:
                return _start_of(log, header, timestamp_ms)
            found = _first_record(log, segment, position, header, timestamp_ms)
            if found is not None:
                return found
        elif batches_left <= 0:
            return _start_of(log, header, timestamp_ms)
        batches_left -= 1
    return None


def _headers_from_timestamp(
    segment: Segment, timestamp_ms: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield batches from a boundary on, before which every timestamp is below the target.

    A time entry (T, offset) says that no batch up to that offset exceeds T; so everything up to
    the last entry with T below the target can be skipped.
    """
    segment.ensure_index_is_sane()
    at = bisect_left(segment.time_index.keys, timestamp_ms)
    if at == 0:
        return segment.headers()
    relative = segment.time_index.values[at - 1]
    before = bisect_right(segment.offset_index.keys, relative)
    return segment.headers(segment.offset_index.values[before - 1] if before else 0)


def _first_record(
    log: SegmentedLog, segment: Segment, position: int, header: BatchHeader, timestamp_ms: int
) -> TimestampOffset | None:
    """Return the first matching record of a batch, or the batch's start if its body does not help.

    A body may be unreadable, or have no record as late as its header says. A body that grows beyond
    the cap when it is decompressed, or has too many records or bytes (a damaged length may claim
    any number), is not read, because it would block the loop for seconds. None if the matching
    records were deleted.
    """
    is_too_much = header.records_count > WALKED_RECORDS_MAX or header.size > LOOKUP_DECOMPRESSED_MAX
    if header.timestamp_type or is_too_much:
        return _start_of(log, header, timestamp_ms)
    batch = log.disk.pread(segment.file.read_fd, header.size, position)
    try:
        for record in walk_records(header, batch, max_size=LOOKUP_DECOMPRESSED_MAX):
            if record.timestamp >= timestamp_ms and record.offset >= log.log_start_offset:
                return TimestampOffset(
                    record.timestamp, record.offset, header.partition_leader_epoch
                )
    except KafkaError:
        return _start_of(log, header, timestamp_ms)
    if header.base_offset < log.log_start_offset:
        return None
    return _start_of(log, header, timestamp_ms)


def _start_of(log: SegmentedLog, header: BatchHeader, timestamp_ms: int) -> TimestampOffset:
    """Answer with the start of a batch. Java clients accept no timestamp below zero."""
    return TimestampOffset(
        max(header.max_timestamp, timestamp_ms),
        max(header.base_offset, log.log_start_offset),
        header.partition_leader_epoch,
    )
