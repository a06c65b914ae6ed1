"""Appends the leader's batches, whole and unchanged, with as few writes as possible.

A fetch brings a range of adjacent batches. Each batch is checked (header, CRC, offset, epoch); then
all batches for one segment are written with one call.
"""

from typing import Final

from fairlead_broker.log import full_disk
from fairlead_broker.log.index.index_file import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from fairlead_broker.log.marker_append import note_marker
from fairlead_broker.log.producers.end_marker import decode_end
from fairlead_broker.log.rolling import should_roll
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_model.invariants import require
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    CONTROL_MASK,
    BatchHeader,
    check_batch,
)

_INDEX_ENTRIES_SIZE: Final = OFFSET_ENTRY.size + TIME_ENTRY.size


def append_as_follower(
    log: SegmentedLog, batches: memoryview, *, now_ms: int, leader_epoch: int | None
) -> None:
    """Append the whole batches of a range; an incomplete one at its end is ignored.

    Batches before a damaged one, or before one of an epoch above `leader_epoch` (KAFKA-18723), are
    appended before the error is raised: CORRUPT_MESSAGE, UNKNOWN_LEADER_EPOCH. KAFKA_STORAGE_ERROR
    if the disk fails or has no room; batches that were written before that stay appended.
    """
    headers: list[BatchHeader] = []
    refusal: KafkaError | None = None
    position, end = 0, len(batches)
    next_offset = log.log_end_offset
    has_gap = False
    while end - position >= BATCH_HEADER_SIZE:
        header = BatchHeader._make(BATCH_HEADER.unpack_from(batches, position))
        size, remaining = header.size, end - position
        if header.length > 0 and size > remaining:
            break
        try:
            check_batch(batches, position, header, remaining=remaining)
            if header.attributes & CONTROL_MASK:
                _check_readable(log, batches, position)
        except KafkaError as error:
            refusal = error
            break
        if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
            refusal = KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{log.path}: a batch of epoch {header.partition_leader_epoch} from the leader of"
                f" epoch {leader_epoch}",
            )
            break
        _check_offset(log, header, next_offset, is_first=not headers)
        has_gap |= header.base_offset > next_offset
        headers.append(header)
        next_offset = header.next_offset
        position += size
    if headers:
        try:
            if has_gap:
                log.note_holes()
            _append(log, batches[:position], headers, now_ms)
        except OSError as error:
            raise full_disk.refuse_append(log, error) from error
    if refusal is not None:
        raise refusal


def _check_readable(log: SegmentedLog, batches: memoryview, position: int) -> None:
    """Check before the append that a control batch can be decoded: it ends a transaction."""
    try:
        decode_end(batches, position)
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.path}: {error}") from error


def _check_offset(
    log: SegmentedLog, header: BatchHeader, next_offset: int, *, is_first: bool
) -> None:
    """Require that offsets never go back, except for the first batch of an empty log (R17).

    That batch may start below the log's end, because the leader's log start can lie inside a batch,
    and the leader sends it whole. Offsets may be missing, because the leader may have compacted
    records away. The topic's present config cannot tell, because it may have changed.
    """
    if header.base_offset >= next_offset:
        return
    is_empty = next_offset == log.log_start_offset == log.active.base_offset
    starts_inside = (
        is_first
        and is_empty
        and log.active.size == 0
        and header.base_offset <= next_offset <= header.last_offset
    )
    require(
        starts_inside,
        "{}: batch {} to {} at log end {}",
        log.path,
        header.base_offset,
        header.last_offset,
        next_offset,
    )


def _append(
    log: SegmentedLog, batches: memoryview, headers: list[BatchHeader], now_ms: int
) -> None:
    """Write all batches at once if they fit into the active segment, otherwise one by one."""
    if len(headers) == 1 or _must_split(log, len(batches), headers, now_ms):
        position = 0
        for header in headers:
            _write(log, batches[position : position + header.size], [header], now_ms)
            position += header.size
    else:
        _write(log, batches, headers, now_ms)


def _must_split(log: SegmentedLog, size: int, headers: list[BatchHeader], now_ms: int) -> bool:
    active = log.active
    index_size = max(active.offset_index.size, active.time_index.size)
    return index_size + len(headers) * _INDEX_ENTRIES_SIZE > active.index_bytes_max or _is_full(
        log, size, headers, now_ms
    )


def _is_full(log: SegmentedLog, size: int, headers: list[BatchHeader], now_ms: int) -> bool:
    last_offset = headers[-1].last_offset
    max_timestamp = max([header.max_timestamp for header in headers])
    if log.active.size == 0 and size > log.config.segment_bytes:
        return len(headers) > 1
    return should_roll(
        log.active,
        log.config,
        size=size,
        last_offset=last_offset,
        max_timestamp=max_timestamp,
        now_ms=now_ms,
        jitter_ms=log.jitter_ms,
    )


def _write(log: SegmentedLog, batches: memoryview, headers: list[BatchHeader], now_ms: int) -> None:
    epochs = log.epochs
    end_offset = log.log_end_offset
    for header in headers:
        if header.partition_leader_epoch > epochs.last_epoch:
            # The leader may have compacted away the first records of this epoch. If the noted start
            # is too early, a follower only copies some records again; if it were too late, a
            # follower would keep records that diverge.
            start_offset = min(end_offset, header.base_offset)
            epochs.assign(header.partition_leader_epoch, start_offset)
        end_offset = header.next_offset
    if headers[-1].last_offset - log.active.base_offset > RELATIVE_OFFSET_MAX:
        # After a gap that no segment can span, the next segment begins at the first record.
        log.roll(now_ms, max(headers[0].base_offset, log.log_end_offset))
    elif _is_full(log, len(batches), headers, now_ms):
        log.roll(now_ms)
    elif log.active.is_sealed:
        log.ensure_writable()
    start = position = log.active.size
    try:
        log.active.append_many(batches, headers)
    except OSError:
        log.active.truncate(start)
        raise
    next_offset = log.log_end_offset
    for header in headers:
        if header.base_offset != next_offset:
            # Recent positions assume that there are no gaps, so they are dropped before one.
            log.forget_recent()
        log.note_recent(header.base_offset, position)
        if header.producer_id >= 0:
            try:
                _note_producer(log, batches[position - start :], header, now_ms)
            except OSError:
                log.end_before_failed_append(position, next_offset)
                raise
        position += header.size
        next_offset = header.next_offset
    log.log_end_offset = headers[-1].next_offset


def _note_producer(log: SegmentedLog, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Update the producer state with a batch, or with a marker."""
    if header.attributes & CONTROL_MASK:
        end = decode_end(batch)
        if end is not None:
            note_marker(log, header, end, now_ms)
    else:
        log.producers.replay(header, now_ms)
