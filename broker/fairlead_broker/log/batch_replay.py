"""Replays batches from log files, to restore the producer state that their appends had built."""

from fairlead_broker.disk import Disk
from fairlead_broker.log.batches.batch_scan import SCAN_CHUNK_BYTES, CorruptSegmentError
from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_broker.log.marker_append import aborted_by, replay_marker
from fairlead_broker.log.producers.end_marker import decode_end
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.record_batch import CONTROL_MASK, BatchHeader


def replay_batch(
    disk: Disk,
    fd: int,
    position: int,
    header: BatchHeader,
    *,
    producers: ProducerState,
    now_ms: int,
) -> AbortedTransaction | None:
    """Replay the batch at `position`; return its entry in the transaction index, if it has one.

    CorruptSegmentError if it is a control batch that cannot be decoded.
    """
    if header.producer_id < 0:
        return None
    if not header.attributes & CONTROL_MASK:
        producers.replay(header, now_ms)
        return None
    if header.size > SCAN_CHUNK_BYTES:
        raise CorruptSegmentError(position, f"a control batch of {header.size} bytes")
    try:
        end = decode_end(disk.pread(fd, header.size, position))
    except RemoteProtocolError as error:
        raise CorruptSegmentError(position, f"a control batch: {error}") from error
    if end is None:
        return None
    aborted = aborted_by(producers, header, end)
    replay_marker(producers, header, end, now_ms)
    return aborted
