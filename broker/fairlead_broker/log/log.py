"""The log of one partition: segments behind one another, appended at the end, read anywhere.

Owned by the event loop. Appends go to the page cache; whatever blocks is handed out as a job that a
thread runs (`flush.py`). Concerns have a module each and work on a `Log`: `append_check` (what a
leader refuses), `lookup` (timestamps), `retention`, `truncation`, `flush`, `log_loader` (opening),
`recovery` (after a crash).

Order that always holds (I1): log_start_offset <= log_end_offset and recovery_point <=
log_end_offset. Appended offsets are contiguous (I8).
"""

from bisect import bisect_right
from typing import Final, NamedTuple, NoReturn

from fairlead_broker.invariants import violated
from fairlead_broker.log import flush, follower_append, lookup, retention, truncation
from fairlead_broker.log.append_check import check_produced_batch
from fairlead_broker.log.batch_scan import CorruptSegmentError
from fairlead_broker.log.deletions import DeletionJob
from fairlead_broker.log.file_slice import FileSlice
from fairlead_broker.log.leader_epochs import EpochEndOffset
from fairlead_broker.log.lookup import ReadResult, TimestampOffset
from fairlead_broker.log.producer_state import SEQUENCE_MASK, ProducedBatch
from fairlead_broker.log.rolling import should_roll
from fairlead_broker.log.segment import Segment
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import (
    BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    batch_crc,
)

NO_APPEND_TIME: Final = -1


class AppendResult(NamedTuple):
    """What a producer is told. Of a duplicate the offsets are those of the original."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 where producers set the timestamps."""
    log_start_offset: int
    is_duplicate: bool


class Log(SegmentedLog):
    """A partition's log as leaders, followers and readers use it."""

    # Appending.

    def append_as_leader(
        self, batch: memoryview, *, leader_epoch: int, now_ms: int, has_keys: bool = False
    ) -> AppendResult:
        """Append one produced batch, giving it offsets and the leader epoch, in place.

        `has_keys` spares a compacted log the look at each record's key.

        `batch` must be writable. KafkaError if it is refused (nothing was written then), or
        KAFKA_STORAGE_ERROR if the disk failed and the log is offline from now on.
        """
        if self.refusal is not None:
            self._refuse_append()
        header = check_produced_batch(
            batch, self.config, now_ms, is_compacted=self.is_compacted and not has_keys
        )
        last_offset_delta, producer_id = header[6], header[9]
        size = header[1] + BATCH_OVERHEAD
        if size != len(batch):
            batch = batch[:size]
        if producer_id >= 0:
            last_sequence = (header[11] + last_offset_delta) & SEQUENCE_MASK
            original = self.producers.find_duplicate(
                producer_id, header[10], header[11], last_sequence
            )
            if original is not None:
                return self._duplicate_result(original)
        max_timestamp, append_time_ms = header[8], NO_APPEND_TIME
        if self.config.is_log_append_time:
            max_timestamp = append_time_ms = now_ms
            _stamp_append_time(batch, header[5], now_ms)
        first_offset = self.log_end_offset
        last_offset = first_offset + last_offset_delta
        batch[:8] = first_offset.to_bytes(8, "big")
        batch[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
        try:
            if leader_epoch != self.epochs.last_epoch:
                # Before the append: followers must find the epoch wherever its records are (R4).
                self.assign_leader_epoch(leader_epoch)
            active = self._segment_for(size, last_offset, max_timestamp, now_ms)
            position = active.size
            active.append(batch, size, last_offset, max_timestamp)
        except OSError as error:
            raise self.go_offline(error) from error
        self.log_end_offset = last_offset + 1
        self.note_recent(first_offset, position)
        if producer_id >= 0:
            produced = ProducedBatch(
                header[11], last_sequence, first_offset, last_offset, max_timestamp
            )
            self.producers.record(producer_id, header[10], produced, now_ms)
        return AppendResult(first_offset, last_offset, append_time_ms, self.log_start_offset, False)

    def append_as_follower(
        self, batches: memoryview, *, now_ms: int, leader_epoch: int | None = None
    ) -> None:
        """Append what the leader sent, as it is. Whole batches only; the first starts at our end.

        A cut-off batch at the end is ignored: the next fetch brings it whole. A batch into an
        empty log may start below it, because a leader's start can lie inside a batch (R17). With
        `leader_epoch` nothing of a later epoch is taken.
        """
        if self.refusal is not None:
            self._refuse_append()
        follower_append.append_as_follower(self, batches, now_ms=now_ms, leader_epoch=leader_epoch)

    def _segment_for(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The active segment, rolled before if the batch must not go into it."""
        if should_roll(
            self.active,
            self.config,
            size=size,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            now_ms=now_ms,
            jitter_ms=self.jitter_ms,
        ):
            self.roll(now_ms)
        elif self.active.is_sealed:
            self.active.activate()
        return self.active

    # Reading.

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` up to `end_offset`, of one segment.

        At most `max_bytes`, except that the first batch is given whole if `minimum_one_batch`.
        KafkaError OFFSET_OUT_OF_RANGE below the log's start or above its end; nothing (not an
        error) between `end_offset` and the log's end.
        """
        log_end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset} to {log_end_offset}",
            )
        if offset >= end_offset or offset == log_end_offset:
            return ReadResult(None, offset, True)
        active = self.active
        recent = self.recent_offsets
        at = bisect_right(recent, offset)
        if at:
            positions = self.recent_positions
            start = positions[at - 1]
            end = active.size
            if end_offset < log_end_offset:
                end = positions[bisect_right(recent, end_offset) - 1]
            if end - start > max_bytes:
                fit = bisect_right(positions, start + max_bytes)
                if fit > at:
                    end = min(end, positions[fit - 1])
                elif not minimum_one_batch:
                    end = start
                elif at < len(positions):
                    end = positions[at]
            if end <= start:
                return ReadResult(None, offset, True)
            return ReadResult(FileSlice(active.file, start, end - start), offset, True)
        try:
            return lookup.read_indexed(
                self, offset, max_bytes, end_offset, minimum_one_batch=minimum_one_batch
            )
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> TimestampOffset | None:
        """The first record at or after a timestamp, below `end_offset`; None if there is none."""
        try:
            return lookup.offset_for_timestamp(self, timestamp_ms, end_offset)
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp (the first of them); None in an empty log."""
        try:
            return lookup.offset_of_max_timestamp(self)
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where a leader epoch ends in this log (R2)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Retention, truncation, flushing: see the modules of these names.

    def delete_expired_segments(self, now_ms: int, high_watermark: int) -> int:
        """Apply retention by time and size; answers the number of segments that went."""
        try:
            return retention.delete_expired_segments(self, now_ms, high_watermark)
        except OSError as error:
            raise self.go_offline(error) from error

    def delete_segments_below_start(self, now_ms: int, high_watermark: int) -> int:
        """Free what a follower's leader has forgotten; answers the number of segments."""
        try:
            return retention.delete_below_start(self, now_ms, high_watermark)
        except OSError as error:
            raise self.go_offline(error) from error

    def advance_log_start_offset(self, offset: int) -> None:
        """Make records below `offset` unreadable (DeleteRecords, or a leader's start)."""
        retention.advance_log_start_offset(self, offset)

    def begin_deletions(self, now_ms: int) -> DeletionJob | None:
        """Files whose grace is over, to be unlinked in a thread."""
        return self.deletions.begin(self.disk, now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forget idempotent producers that were silent for too long."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on; an offset derived from leader epochs (R1)."""
        truncation.truncate_to(self, offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`, where the leader's log starts now (R17)."""
        truncation.restart_at(self, offset)

    def flush_is_due(self, now_ms: int) -> bool:
        """True after a roll, or when `flush.messages` or `flush.ms` ask for a flush."""
        return flush.is_due(self, now_ms)

    def begin_flush(self) -> flush.FlushJob | None:
        """What a thread must fsync; None if nothing is un-synced or a flush is under way."""
        return flush.begin_flush(self)

    def complete_flush(self, job: flush.FlushJob, now_ms: int) -> None:
        """Back on the loop: move the recovery point, or go offline if the fsync failed."""
        flush.complete_flush(self, job, now_ms)

    def begin_write_out(self) -> flush.WriteOutJob | None:
        """What a thread asks the kernel to write early; None while little is dirty."""
        return flush.begin_write_out(self)

    def _refuse_append(self) -> NoReturn:
        if self.is_offline or self.refusal == "closed":
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} is {self.refusal}")
        violated("{}: append refused: {}", self.path, self.refusal)

    def _duplicate_result(self, original: ProducedBatch) -> AppendResult:
        append_time_ms = original.timestamp if self.config.is_log_append_time else NO_APPEND_TIME
        return AppendResult(
            original.first_offset,
            original.last_offset,
            append_time_ms,
            self.log_start_offset,
            True,
        )


def _stamp_append_time(batch: memoryview, attributes: int, now_ms: int) -> None:
    """Set the timestamp type and the largest timestamp; both are under the CRC."""
    batch[21:23] = (attributes | TIMESTAMP_TYPE_MASK).to_bytes(2, "big", signed=True)
    batch[35:43] = now_ms.to_bytes(8, "big", signed=True)
    batch[17:21] = batch_crc(batch, 0, len(batch)).to_bytes(4, "big")
