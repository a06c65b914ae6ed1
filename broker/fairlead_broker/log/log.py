"""The log of one partition: a sequence of segments, appended at the end and read anywhere.

The event loop owns it. Appends go to the page cache; blocking work is returned as a job that a
thread runs (`flush.py`). Each concern has a module that works on a `Log`: `append_check` (what a
leader refuses), `lookup` (offsets and timestamps), `retention`, `truncation`, `flush`,
`log_loader` (opening), `recovery` (after a crash).

Always true (I1): log_start_offset <= log_end_offset and recovery_point <= log_end_offset. Appended
offsets are contiguous (I8).
"""

import errno
import logging
from array import array
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from fairlead_broker.disk import Disk
from fairlead_broker.limits import RECENT_BATCHES_MAX
from fairlead_broker.log import (
    flush,
    follower_append,
    full_disk,
    lookup,
    marker_append,
    retention,
    truncation,
)
from fairlead_broker.log.batches.append_check import check_produced_batch
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.batches.produced_records import HeaderFields
from fairlead_broker.log.batches.recompression import as_stored
from fairlead_broker.log.files.deferred_files import DeferredFiles
from fairlead_broker.log.files.deletions import DeletionJob, Deletions
from fairlead_broker.log.files.file_names import (
    CHECKPOINTED_MARK,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    offset_name,
)
from fairlead_broker.log.files.file_slice import FileSlice
from fairlead_broker.log.files.holes import mark_holes
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.log.files.text_files import encode_epoch_checkpoint, encode_partition_metadata
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT, FlushState
from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_broker.log.leader_epochs import EpochEndOffset, LeaderEpochs
from fairlead_broker.log.lookup import ReadResult, TimestampOffset
from fairlead_broker.log.producer_loading import find_unreplicated
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_snapshot import encode_snapshot
from fairlead_broker.log.producers.producer_state import SEQUENCE_MASK, ProducedBatch, ProducerState
from fairlead_broker.log.producers.recent_producers import RecentProducers
from fairlead_broker.log.producers.verification import VerificationGuard
from fairlead_broker.log.rolling import roll_jitter_ms, should_roll
from fairlead_broker.log.segment import Segment
from fairlead_model.configs.log_config import NEVER, PRODUCERS_CODEC, LogConfig
from fairlead_model.invariants import require, violated
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import (
    BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    batch_crc,
)

if TYPE_CHECKING:
    from fairlead_broker.log.segmented_log import Replacement

logger = logging.getLogger(__name__)

NO_APPEND_TIME: Final = -1
_CLOSED: Final = "closed"


class AppendResult(NamedTuple):
    """The answer to a producer. For a duplicate it has the offsets of the original."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 if producers set the timestamps."""
    log_start_offset: int
    is_duplicate: bool


class Log:
    """A partition's log as leaders, followers and readers use it.

    Appends and truncation move `log_end_offset`, retention and DeleteRecords move
    `log_start_offset`, a completed flush moves `recovery_point` (everything below was fsynced).

    `segments` is never empty; the last one is active. `recent_*` are base offset and position of
    the newest batches of the active segment, contiguous up to its end. Below `first_dirty_offset`
    the log is compacted; the last tombstone there may be removed at `last_horizon_ms`. While
    `has_aborted` is false, no transaction index has an entry. `start_before_cut` is the log start
    in the checkpoints if a power cut may have removed the first segments, otherwise None. A log
    that `lacks_room` is complete, and takes no records until there is room on its disk
    (`full_disk`).
    """

    def __init__(
        self,
        disk: Disk,
        cache: ReadCache,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerState,
        deferred: DeferredFiles,
        has_holes: bool = False,
    ) -> None:
        require(bool(segments), "log {} has no segment", directory)
        self.disk = disk
        self.cache = cache
        self.path = directory
        self.directory = Path(directory)
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.epochs = epochs
        self.producers = producers
        self.recent_producers = RecentProducers()
        self.deferred = deferred
        self.refusal: str | None = None
        self.is_offline = False
        self.lacks_room = False
        self.flush_state = FlushState()
        self.deletions = Deletions()
        self.recent_offsets: array[int] = array("q")
        self.recent_positions: array[int] = array("q")
        self.jitter_ms = 0
        self.is_compacted = False
        self.has_holes = has_holes
        self.first_dirty_offset = log_start_offset
        self.last_horizon_ms = NEVER
        self.is_checkpointed = False
        self.start_before_cut: int | None = None
        self.has_aborted = any(segment.transaction_index.size for segment in segments)
        self.swap: Replacement | None = None
        self.reconfigure(config)
        self.check_offsets()

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_leader_epoch(self) -> int:
        """The newest leader epoch, -1 if there is none."""
        return self.epochs.last_epoch

    @property
    def unflushed_messages(self) -> int:
        """Offsets that were appended and not fsynced yet."""
        return self.log_end_offset - self.recovery_point

    def check_offsets(self) -> None:
        """Assert I1 after an offset was set other than by an append."""
        require(
            self.log_start_offset <= self.log_end_offset
            and self.recovery_point <= self.log_end_offset
            and self.active.base_offset <= self.log_end_offset,
            "{}: start {}, recovery point {}, active base {}, end {}",
            self.path,
            self.log_start_offset,
            self.recovery_point,
            self.active.base_offset,
            self.log_end_offset,
        )

    def reconfigure(self, config: LogConfig) -> None:
        """Use changed topic configs from the next append or check on."""
        self.config = config
        self.is_compacted = config.is_compacted
        self._set_jitter()
        self.active.index_interval_bytes = config.index_interval_bytes
        self.active.index_bytes_max = config.segment_index_bytes

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Set the id of the topic, and write its file, which was lost or never written."""
        self.topic_id = topic_id
        self.deferred.replace(
            f"{self.path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)
        )

    def note_holes(self) -> None:
        """Mark that offsets may have gaps, before the log has its first gap. OSError."""
        if not self.has_holes:
            mark_holes(self.disk, self.path)
            self.has_holes = True
            logger.info("%s: the log has gaps now, where records were compacted away", self.path)

    def note_checkpointed(self) -> None:
        """Note that the checkpoint files have this log now, unless it was deleted meanwhile.

        See `directory.checkpointed_offsets`.
        """
        if self.is_closed:
            return
        try:
            self.disk.close(self.disk.open_write(f"{self.path}/{CHECKPOINTED_MARK}"))
        except OSError as error:
            logger.warning("%s: it is noted with the next checkpoint: %s", self.path, error)
            return
        self.deferred.note_directory(self.path)
        self.is_checkpointed = True

    def append_as_leader(
        self,
        batch: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        has_keys: bool = False,
        guard: VerificationGuard | None = None,
        is_from_coordinator: bool = False,
    ) -> AppendResult:
        """Append one produced batch, giving it offsets and the leader epoch, in place.

        `batch` must be writable. A `guard` comes with a batch that opens a transaction. A batch
        that `is_from_coordinator` has no sequences. With `has_keys` a compacted log does not check
        keys. KafkaError if nothing was written: KAFKA_STORAGE_ERROR if the log is offline or full.
        """
        if self.refusal is not None:
            self._refuse_lead()
        header = check_produced_batch(
            batch,
            self.config,
            now_ms,
            is_compacted=self.is_compacted and not has_keys,
            is_from_coordinator=is_from_coordinator,
        )
        last_offset_delta, producer_id = header[6], header[9]
        if producer_id >= 0:
            last_sequence = (header[11] + last_offset_delta) & SEQUENCE_MASK
            if header[5] & TRANSACTIONAL_MASK:
                original = self._check_transactional(
                    header, guard, is_from_coordinator=is_from_coordinator
                )
            else:
                original = self.producers.find_duplicate(
                    producer_id, header[10], header[11], last_sequence
                )
            if original is not None:
                return self._duplicate_result(original)
        size = header[1] + BATCH_OVERHEAD
        if size != len(batch):
            batch = batch[:size]
        if self.config.compression_type != PRODUCERS_CODEC:
            batch = as_stored(batch, self.config)
            size = len(batch)
        max_timestamp, append_time_ms = header[8], NO_APPEND_TIME
        if self.config.is_log_append_time:
            max_timestamp = append_time_ms = now_ms
            _stamp_append_time(batch, now_ms)
        first_offset = self.log_end_offset
        last_offset = first_offset + last_offset_delta
        batch[:8] = first_offset.to_bytes(8, "big")
        batch[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
        try:
            if leader_epoch != self.epochs.last_epoch:
                # Before the append: a follower that has records of the epoch must find it (R4).
                self.assign_leader_epoch(leader_epoch)
            active = self.segment_for(size, last_offset, max_timestamp, now_ms)
            active.append(batch, size, last_offset, max_timestamp)
        except OSError as error:
            raise full_disk.refuse_append(self, error) from error
        self.log_end_offset = last_offset + 1
        self.note_recent(first_offset, active.size - size)
        if producer_id >= 0:
            entry = ProducedBatch(
                header[11], last_sequence, first_offset, last_offset, max_timestamp
            )
            producers, is_transactional = self.producers, header[5] & TRANSACTIONAL_MASK
            record = producers.record_transactional if is_transactional else producers.record
            record(producer_id, header[10], entry, now_ms)
        return AppendResult(first_offset, last_offset, append_time_ms, self.log_start_offset, False)

    def _check_transactional(
        self,
        header: HeaderFields,
        guard: VerificationGuard | None,
        *,
        is_from_coordinator: bool,
    ) -> ProducedBatch | None:
        last_offset_delta, producer_id, epoch, first_sequence = header[6], *header[9:12]
        return self.producers.check_transactional(
            producer_id,
            epoch,
            first_sequence,
            (first_sequence + last_offset_delta) & SEQUENCE_MASK,
            guard,
            is_from_coordinator=is_from_coordinator,
        )

    def append_end_marker(
        self, marker: EndMarker, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append a transaction's marker, also if the producer has no open transaction.

        KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the marker is
        refused, and nothing was written; KAFKA_STORAGE_ERROR as in `append_as_leader`.
        """
        if self.refusal is not None:
            self._refuse_lead()
        self.producers.check_marker(marker)
        try:
            offset = marker_append.append_end_marker(
                self, marker, leader_epoch=leader_epoch, now_ms=now_ms
            )
        except OSError as error:
            raise full_disk.refuse_append(self, error) from error
        return AppendResult(offset, offset, NO_APPEND_TIME, self.log_start_offset, False)

    def append_as_follower(
        self, batches: memoryview, *, now_ms: int, leader_epoch: int | None = None
    ) -> None:
        """Append the leader's whole batches unchanged; the first one starts at this log's end.

        An incomplete batch at the end is ignored: the next fetch gets it whole. The first batch of
        an empty log may start below its end, because the leader's log start can lie inside a batch
        (R17). With `leader_epoch`, batches of later epochs are not appended.
        """
        if self.refusal is not None:
            self._refuse_append()
        follower_append.append_as_follower(self, batches, now_ms=now_ms, leader_epoch=leader_epoch)

    def segment_for(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """Return the active segment; roll first if the batch must not go into it."""
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
            self.ensure_writable()
        return self.active

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool
    ) -> ReadResult:
        """Return whole batches of one segment, from the one that holds `offset` up to `end_offset`.

        At most `max_bytes`, except that the first batch is given whole if `minimum_one_batch`. For
        a segment that is stored elsewhere the answer has its `arrival`; this call does not wait for
        it. KafkaError OFFSET_OUT_OF_RANGE below the log's start or above its end. Between
        `end_offset` and the log's end the answer has no records, and that is not an error.
        """
        log_end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset} to {log_end_offset}",
            )
        if offset >= end_offset or offset == log_end_offset:
            return ReadResult(None, offset)
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
                return ReadResult(None, offset)
            return ReadResult(FileSlice(active.file, start, end - start), offset)
        try:
            return lookup.read_indexed(
                self, offset, max_bytes, end_offset, minimum_one_batch=minimum_one_batch
            )
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def offset_for_timestamp(
        self, timestamp_ms: int, *, end_offset: int, is_hurried: bool = False
    ) -> TimestampOffset | None:
        """Return the first record at or after a timestamp, below `end_offset`, or None.

        It may be an earlier record if the search would take too long.
        """
        try:
            return lookup.offset_for_timestamp(
                self, timestamp_ms, end_offset, is_hurried=is_hurried
            )
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def offset_of_max_timestamp(self, *, is_hurried: bool = False) -> TimestampOffset | None:
        """Return the first record with the largest timestamp; None in an empty log."""
        try:
            return lookup.offset_of_max_timestamp(self, is_hurried=is_hurried)
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def upper_offset(self, fetch_offset: int, records: FileSlice) -> int:
        """Return the offset after `records`, read from `fetch_offset` on, or one a little above."""
        try:
            return lookup.upper_offset(self, fetch_offset, records)
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Return aborted transactions that may have records in [fetch_offset, upper_offset)."""
        try:
            return lookup.aborted_transactions(self, fetch_offset, upper_offset)
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error

    def recall_unreplicated(self, high_watermark: int) -> None:
        """After a start, find transactions whose markers are not below the high watermark.

        This costs time only in logs that have had transactions, and reads only their tail.
        """
        if high_watermark >= self.log_end_offset or not self.producers.has_seen_markers:
            return
        try:
            ended = find_unreplicated(self.disk, self.path, self.segments, high_watermark)
        except CorruptSegmentError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise self.go_offline(error) from error
        self.producers.add_unreplicated(ended)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Return where a leader epoch ends in this log (R2)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def delete_expired_segments(self, now_ms: int, last_stable_offset: int) -> int:
        """Apply retention by time and size; return the number of deleted segments."""
        try:
            return retention.delete_expired_segments(self, now_ms, last_stable_offset)
        except OSError as error:
            raise full_disk.refuse(self, error) from error

    def delete_segments_below_start(self, now_ms: int, high_watermark: int) -> int:
        """Delete segments below the leader's log start; return their number."""
        try:
            return retention.delete_below_start(self, now_ms, high_watermark)
        except OSError as error:
            raise full_disk.refuse(self, error) from error

    def advance_log_start_offset(self, offset: int) -> None:
        """Make records below `offset` unreadable (DeleteRecords, or a leader's start)."""
        retention.advance_log_start_offset(self, offset)

    def begin_deletions(self, now_ms: int) -> DeletionJob | None:
        """Return a job that unlinks, in a thread, the files whose delay is over; None if none."""
        return self.deletions.begin(self.disk, now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forget idempotent producers that were silent for too long; return their number."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on; the offset must come from leader epochs (R1)."""
        truncation.truncate_to(self, offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything and continue at `offset`, where the leader's log starts now (R17)."""
        truncation.restart_at(self, offset)

    def flush_is_due(self, now_ms: int) -> bool:
        """Return True after a roll, or when `flush.messages` or `flush.ms` ask for a flush."""
        return flush.is_due(self, now_ms)

    def begin_flush(self) -> flush.FlushJob | None:
        """Return a job of fsyncs for a thread; None if all is synced or no flush can begin now."""
        return flush.begin_flush(self)

    def complete_flush(self, job: flush.FlushJob, now_ms: int) -> None:
        """Apply a job's result: advance the recovery point, or go offline if an fsync failed."""
        flush.complete_flush(self, job, now_ms)

    def begin_write_out(self) -> flush.WriteOutJob | None:
        """Return a job by which a thread has the kernel write early; None if little is dirty."""
        return flush.begin_write_out(self)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Record the epoch in which this replica leads from now on, before any append (R4).

        This changes memory, from which followers are answered. The file is written later, see
        `write_epochs`: thousands of partitions may enter an epoch at once, or get their first
        record, and replacing as many files would block the loop for seconds.
        """
        if leader_epoch < self.epochs.last_epoch:
            violated(
                "{}: leader epoch {} after {}", self.path, leader_epoch, self.epochs.last_epoch
            )
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def maybe_write_epochs(self) -> bool:
        """Write the epoch file if its content is outdated; return whether it was written.

        KafkaError if the write fails: the log is then offline or lacks room. The file is not
        written while the log refuses appends, for example because it is offline or lacks room.
        """
        if not self.epochs.is_dirty or self.refusal is not None:
            return False
        try:
            self.write_epochs()
        except OSError as error:
            raise full_disk.refuse(self, error) from error
        return True

    def write_epochs(self) -> None:
        """Put the epoch file in place; a thread fsyncs it later, together with others.

        Records may be in the log long before their epoch is in the file. Recovery finds the epoch
        again by their headers, but only from the segment of the recovery point on. So the file is
        written before any flush that moves the recovery point, and before a clean stop.
        """
        content = encode_epoch_checkpoint(self.epochs.entries())
        self.deferred.replace(f"{self.path}/{LEADER_EPOCH_CHECKPOINT}", content)
        self.epochs.is_dirty = False

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Seal the active segment and start the next one at the end of the log.

        A `base_offset` above the end is for batches after a gap that no segment can span.
        """
        base_offset = self.log_end_offset if base_offset is None else base_offset
        if self.active.size == 0 and self.active.base_offset == base_offset:
            return
        self.ensure_writable()
        self.active.seal()
        self.flush_state.is_wanted = True
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        self.write_snapshot()
        self.add_segment(
            Segment.create(
                self.disk,
                self.cache,
                self.path,
                base_offset,
                index_interval_bytes=self.config.index_interval_bytes,
                index_bytes_max=self.config.segment_index_bytes,
                created_ms=now_ms,
            )
        )

    def ensure_writable(self) -> None:
        """Load the active segment's indexes into memory; done at the first append.

        OSError also if a batch is damaged: nothing can be appended after it, so this counts as a
        failure of the disk.
        """
        if self.active.is_sealed:
            try:
                self.active.activate()
            except CorruptSegmentError as error:
                raise OSError(errno.EIO, str(error)) from error

    def settle_swap(self) -> None:
        """Finish or give up a running replacement before segments are deleted or cut. OSError.

        This may fsync the directory on the loop, but it is very rare.
        """
        if self.swap is not None:
            self.swap.settle()

    def add_segment(self, segment: Segment) -> None:
        """Make a new segment the active one."""
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.set_active()

    def set_active(self) -> None:
        """Make the last segment the active one after the list changed; forget recent positions."""
        self.active = self.segments[-1]
        self.forget_recent()
        self._set_jitter()

    def write_snapshot(self) -> None:
        """Write a snapshot of the producers at the log end."""
        path = f"{self.path}/{offset_name(self.log_end_offset)}{SNAPSHOT_SUFFIX}"
        self.deferred.replace(path, encode_snapshot(self.producers))

    def forget_recent(self) -> None:
        """Forget the positions of the newest batches."""
        del self.recent_offsets[:], self.recent_positions[:]

    def note_recent(self, base_offset: int, position: int) -> None:
        """Note the position of the newest batch; drop the older half if there are too many."""
        offsets = self.recent_offsets
        offsets.append(base_offset)
        self.recent_positions.append(position)
        if len(offsets) == RECENT_BATCHES_MAX:
            del offsets[: RECENT_BATCHES_MAX // 2]
            del self.recent_positions[: RECENT_BATCHES_MAX // 2]

    def end_before_failed_append(self, position: int, end_offset: int) -> None:
        """Cut off a batch that is written, but whose append failed in a later step. OSError."""
        self.log_end_offset = end_offset
        self.forget_recent()
        self.active.truncate(position)

    def _set_jitter(self) -> None:
        self.jitter_ms = roll_jitter_ms(self.path, self.active.base_offset, self.config)

    def go_offline(self, error: OSError) -> KafkaError:
        """Refuse all further appends, because the disk failed; return the error for clients.

        Bytes of the failed write may be in the file after `active.size`. Recovery at the next start
        cuts them off, so a log that went offline never counts as cleanly stopped.
        """
        self.is_offline, self.lacks_room = True, False
        self.refusal = f"offline: {error}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}")

    @property
    def is_closed(self) -> bool:
        """True from `close` on: nothing is written any more, as for a log that was deleted."""
        return self.refusal == _CLOSED

    def close(self) -> None:
        """Close all descriptors. Flush first if the log is to count as cleanly stopped."""
        self.refusal, self.lacks_room = _CLOSED, False
        if not self.is_offline:
            try:
                self.settle_swap()
            except OSError as error:
                logger.warning("%s: the next start finishes a compaction: %s", self.path, error)
        for segment in self.segments:
            segment.close()

    def _refuse_lead(self) -> NoReturn:
        if self.refusal == AWAITS_CHECKPOINT:
            # This replica became leader milliseconds after its truncation: a retry will succeed.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.path} is {self.refusal}")
        self._refuse_append()

    def _refuse_append(self) -> NoReturn:
        if self.is_offline or self.lacks_room or self.is_closed:
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


def _stamp_append_time(batch: memoryview, now_ms: int) -> None:
    """Set the timestamp type and the largest timestamp, and the CRC, which covers both."""
    batch[22] |= TIMESTAMP_TYPE_MASK
    batch[35:43] = now_ms.to_bytes(8, "big", signed=True)
    batch[17:21] = batch_crc(batch, 0, len(batch)).to_bytes(4, "big")
