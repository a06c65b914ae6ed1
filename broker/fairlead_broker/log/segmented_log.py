"""The state that all concerns of a log share: its segments, its marks, and how it goes offline.

`Log` adds appending and reading; `lookup`, `retention`, `truncation` and `flush` work on this.
"""

import logging
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead_broker.disk import Disk
from fairlead_broker.invariants import require, violated
from fairlead_broker.limits import RECENT_BATCHES_MAX
from fairlead_broker.log.deferred_files import DeferredFiles
from fairlead_broker.log.deletions import Deletions
from fairlead_broker.log.file_names import (
    CHECKPOINTED_MARK,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    offset_name,
)
from fairlead_broker.log.flush_state import FlushState
from fairlead_broker.log.holes import mark_holes
from fairlead_broker.log.leader_epochs import LeaderEpochs
from fairlead_broker.log.producer_snapshot import encode_snapshot
from fairlead_broker.log.producer_state import ProducerState
from fairlead_broker.log.read_cache import ReadCache
from fairlead_broker.log.rolling import roll_jitter_ms
from fairlead_broker.log.segment import Segment
from fairlead_broker.log.text_files import encode_epoch_checkpoint, encode_partition_metadata
from fairlead_model.log_config import NEVER, LogConfig
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.log.segment_swap import SegmentSwap

logger = logging.getLogger(__name__)


class SegmentedLog:
    """Who moves what: `log_end_offset` append and truncation, `log_start_offset` retention and
    DeleteRecords, `recovery_point` a completed flush (everything below was fsynced).

    `segments` is never empty; the last one is active. `recent_*` are base offset and position of
    the newest batches of the active segment, contiguous up to its end. Below `first_dirty_offset`
    the log was compacted; the last of the tombstones there may go at `last_horizon_ms`.
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
        self.deferred = deferred
        self.refusal: str | None = None
        self.is_offline = False
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
        self.swap: SegmentSwap | None = None
        self.reconfigure(config)
        self.check_marks()

    # Marks.

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_leader_epoch(self) -> int:
        """The newest leader epoch, -1 if none was ever entered."""
        return self.epochs.last_epoch

    @property
    def unflushed_messages(self) -> int:
        """Offsets that were appended and not fsynced yet."""
        return self.log_end_offset - self.recovery_point

    def check_marks(self) -> None:
        """I1, at every set of a mark other than the hot one."""
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
        """Take over changed topic settings; they hold from the next append or check on."""
        self.config = config
        self.is_compacted = config.is_compacted
        self._set_jitter()
        self.active.index_interval_bytes = config.index_interval_bytes
        self.active.index_bytes_max = config.segment_index_bytes

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Note the topic that this log turned out to belong to; its file was lost or never made."""
        self.topic_id = topic_id
        self.deferred.replace(
            f"{self.path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)
        )

    def note_holes(self) -> None:
        """Let offsets have gaps from now on, before the first one is there. OSError."""
        if not self.has_holes:
            mark_holes(self.disk, self.path)
            self.has_holes = True
            logger.info("%s: the log has gaps now, where records were compacted away", self.path)

    def note_checkpointed(self) -> None:
        """The checkpoint files speak of this log now, see `marks`; unless it has gone meanwhile."""
        if self.refusal == "closed":
            return
        try:
            self.disk.close(self.disk.open_write(f"{self.path}/{CHECKPOINTED_MARK}"))
        except OSError as error:
            logger.warning("%s: the next checkpoint marks it: %s", self.path, error)
            return
        self.deferred.note_directory(self.path)
        self.is_checkpointed = True

    # Leader epochs.

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Enter the epoch that this replica leads from now on, before any append (R4).

        In memory, where followers are answered from. The file follows when there is time, see
        `write_epochs`: thousands of partitions may enter an epoch at once, or get their first
        record, and replacing as many files would hold up the loop for seconds.
        """
        if leader_epoch < self.epochs.last_epoch:
            violated(
                "{}: leader epoch {} after {}", self.path, leader_epoch, self.epochs.last_epoch
            )
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def maybe_write_epochs(self) -> bool:
        """Write the epoch file if it lags behind; whether it did. The log goes offline if it can't.

        Not while the start is unconfirmed or the log is offline: nothing is appended then either.
        """
        if not self.epochs.is_dirty or self.refusal is not None:
            return False
        try:
            self.write_epochs()
        except OSError as error:
            raise self.go_offline(error) from error
        return True

    def write_epochs(self) -> None:
        """Put the epoch file in place; a thread fsyncs it later, together with others.

        Records may be there long before their epoch's entry: recovery finds it again by their
        headers, but only where it looks, which is from the segment of the recovery point on. So
        the file comes before any flush that moves the recovery point, and before a clean stop.
        """
        content = encode_epoch_checkpoint(self.epochs.entries())
        self.deferred.replace(f"{self.path}/{LEADER_EPOCH_CHECKPOINT}", content)
        self.epochs.is_dirty = False

    # Rolling.

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Seal the active segment and start the next one at the end of the log.

        A `base_offset` above the end is for what follows a gap that no segment can span.
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
        """Bring the active segment's indexes into memory; put off until the first append."""
        if self.active.is_sealed:
            self.active.activate()

    def settle_swap(self) -> None:
        """Before segments go or are cut: a replacement under way is finished or given up. OSError.

        May wait for the device, which otherwise nothing on the loop does; it is hardly ever so.
        """
        if self.swap is not None:
            self.swap.settle()

    def add_segment(self, segment: Segment) -> None:
        """Make a new segment the active one."""
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.set_active()

    def set_active(self) -> None:
        """After the list of segments changed: the last one is written; remembered positions go."""
        self.active = self.segments[-1]
        self.forget_recent()
        self._set_jitter()

    def write_snapshot(self) -> None:
        """Write down the producers as of the log end."""
        path = f"{self.path}/{offset_name(self.log_end_offset)}{SNAPSHOT_SUFFIX}"
        self.deferred.replace(path, encode_snapshot(self.producers))

    # The end.

    def go_offline(self, error: OSError) -> KafkaError:
        """The disk failed this log: it takes no more appends. Answers what clients are told.

        Bytes of the failed write may be in the file behind `active.size`; recovery at the next
        start cuts them off, so a log that went offline is never counted as cleanly stopped.
        """
        self.is_offline = True
        self.refusal = f"offline: {error}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}")

    def close(self) -> None:
        """Let go of every descriptor. Flush first if the log shall count as cleanly stopped."""
        self.refusal = "closed"
        if not self.is_offline:
            try:
                self.settle_swap()
            except OSError as error:
                logger.warning("%s: the next start finishes a compaction: %s", self.path, error)
        for segment in self.segments:
            segment.close()

    def forget_recent(self) -> None:
        """Positions of newest batches no longer hold."""
        del self.recent_offsets[:], self.recent_positions[:]

    def note_recent(self, base_offset: int, position: int) -> None:
        """Remember where the newest batch lies; the older half goes when there are too many."""
        offsets = self.recent_offsets
        offsets.append(base_offset)
        self.recent_positions.append(position)
        if len(offsets) == RECENT_BATCHES_MAX:
            del offsets[: RECENT_BATCHES_MAX // 2]
            del self.recent_positions[: RECENT_BATCHES_MAX // 2]

    def _set_jitter(self) -> None:
        self.jitter_ms = roll_jitter_ms(self.path, self.active.base_offset, self.config)
