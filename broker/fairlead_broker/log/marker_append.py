"""Ends a transaction: writes the marker to the log, and an abort to the transaction index.

The order matters: first the marker is in the log, then the index has its entry, and only then is
the transaction over. The last stable offset advances with the last step, so no reader gets past an
aborted transaction that is not in the index yet.
"""

from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_broker.log.producers.end_marker import EndMarker, encode_end_marker
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_wire.record_batch import BatchHeader, decode_batch_header
from fairlead_wire.records import ControlType, EndOfTransaction


def append_end_marker(
    log: SegmentedLog, marker: EndMarker, *, leader_epoch: int, now_ms: int
) -> int:
    """Append a marker at the log's end; return its offset. OSError."""
    offset = log.log_end_offset
    batch = encode_end_marker(marker, offset=offset, leader_epoch=leader_epoch, timestamp_ms=now_ms)
    header = decode_batch_header(batch)
    if leader_epoch != log.epochs.last_epoch:
        log.assign_leader_epoch(leader_epoch)
    active = log.segment_for(header.size, offset, now_ms, now_ms)
    position = active.size
    active.append(batch, header.size, offset, now_ms)
    log.log_end_offset = offset + 1
    log.note_recent(offset, position)
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    try:
        note_marker(log, header, EndOfTransaction(kind, marker.coordinator_epoch), now_ms)
    except OSError:
        # Cutting it off is safe: no reader has seen the marker yet.
        log.end_before_failed_append(position, offset)
        raise
    return offset


def note_marker(log: SegmentedLog, header: BatchHeader, end: EndOfTransaction, now_ms: int) -> None:
    """Update the state with a marker that was just written to the active segment. OSError."""
    aborted = aborted_by(log.producers, header, end)
    if aborted is not None:
        log.active.transaction_index.append(aborted)
        log.has_aborted = True
    replay_marker(log.producers, header, end, now_ms)


def aborted_by(
    producers: ProducerState, header: BatchHeader, end: EndOfTransaction
) -> AbortedTransaction | None:
    """Return a marker's entry in the transaction index, None if it aborts nothing in this log.

    A producer without an open transaction here has no records that readers must skip.
    """
    first_offset = producers.transaction_of(header.producer_id)
    if first_offset is None or end.type is not ControlType.ABORT:
        return None
    stable = producers.first_open_beside(header.producer_id)
    return AbortedTransaction(
        header.producer_id,
        first_offset,
        header.base_offset,
        header.next_offset if stable is None else stable,
    )


def replay_marker(
    producers: ProducerState, header: BatchHeader, end: EndOfTransaction, now_ms: int
) -> None:
    """Replay a marker that is already in the log."""
    producers.end_transaction(
        header.producer_id,
        header.producer_epoch,
        end.coordinator_epoch,
        offset=header.base_offset,
        timestamp=header.max_timestamp,
        now_ms=now_ms,
    )
