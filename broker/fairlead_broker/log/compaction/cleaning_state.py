"""What compaction must know of a log, collected on the event loop, and whether it still holds."""

from typing import Final

from fairlead_broker.log.batches.batch_scan import walk_headers
from fairlead_broker.log.compaction.cleaning_plan import (
    CleaningPlan,
    LogFacts,
    SegmentFacts,
    first_dirty_offset,
    group_segments,
    must_roll,
)
from fairlead_broker.log.compaction.log_cleaning import (
    CleanedGroup,
    CleaningOrder,
    CleaningReport,
    check_room,
)
from fairlead_broker.log.compaction.producer_traces import producer_traces
from fairlead_broker.log.segment import Segment
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_model.configs.log_config import NEVER
from fairlead_wire.record_batch import NO_TIMESTAMP

UNLIMITED: Final = float("inf")


def log_facts(log: SegmentedLog, stable_offset: int, *, high_watermark: int) -> LogFacts:
    """Return the facts that a plan is made from. OSError, CorruptSegmentError."""
    log.first_dirty_offset = first_dirty_offset(
        log.first_dirty_offset, log.log_start_offset, log.log_end_offset
    )
    oldest_dirty_ms = NO_TIMESTAMP
    if log.config.max_compaction_lag_ms != NEVER:
        oldest_dirty_ms = _oldest_dirty_ms(log)
    return LogFacts(
        segments=[
            SegmentFacts(
                segment.base_offset,
                segment.size,
                segment.offset_index.size,
                segment.time_index.size,
                _newest_ms(log, segment),
                next_base_offset,
            )
            for segment, next_base_offset in zip(log.segments, log.bases[1:], strict=False)
        ],
        log_start_offset=log.log_start_offset,
        first_dirty_offset=log.first_dirty_offset,
        stable_offset=stable_offset,
        high_watermark=high_watermark,
        recovery_point=log.recovery_point,
        oldest_dirty_ms=oldest_dirty_ms,
        last_horizon_ms=log.last_horizon_ms,
    )


def maybe_roll(log: SegmentedLog, now_ms: int) -> bool:
    """Roll the active segment if its first record has waited too long for compaction."""
    active = log.active
    first_ms = NO_TIMESTAMP
    if log.config.max_compaction_lag_ms != NEVER and active.size:
        first_ms = _first_ms(log, active)
    if not must_roll(first_ms, log.config, now_ms, is_empty=active.size == 0):
        return False
    log.roll(now_ms)
    return True


class LogCleaner:
    """The event loop's part of one cleaning of one log, from the order to the checkpoint."""

    def __init__(self, log: SegmentedLog, plan: CleaningPlan) -> None:
        self._log = log
        self._plan = plan
        self._generation = log.flush_state.generation
        self._segments = {
            segment.base_offset: segment for segment in log.segments[: len(plan.segments)]
        }

    @property
    def is_valid(self) -> bool:
        """False once the log was truncated, lost segments or left service: give up the cleaning."""
        log = self._log
        if log.refusal is not None or not log.is_compacted:
            return False
        if log.flush_state.generation != self._generation:
            return False
        return log.bases[0] == self._plan.segments[0].base_offset

    def check_room(self) -> None:
        """Raise NoRoomError if the disk lacks room for the first group. OSError.

        The child process checks each group.
        """
        log = self._log
        groups = group_segments(
            self._plan.segments,
            segment_bytes=log.config.segment_bytes,
            segment_index_bytes=log.config.segment_index_bytes,
        )
        check_room(log.disk, log.path, groups[0])

    def order(
        self,
        now_ms: int,
        *,
        dedupe_buffer_bytes: int,
        io_bytes_per_second: float = UNLIMITED,
    ) -> CleaningOrder:
        """Return the order for the child process."""
        log, config, high_watermark = self._log, self._log.config, self._plan.high_watermark
        unreplicated = log.producers.unreplicated
        traces = producer_traces(
            log.producers,
            high_watermark,
            has_uncommitted_markers=any(
                each.marker_offset >= high_watermark for each in unreplicated
            ),
        )
        return CleaningOrder(
            directory=log.path,
            segments=list(self._plan.segments),
            first_dirty_offset=self._plan.first_dirty_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=dedupe_buffer_bytes,
            last_offsets=traces.last_offsets,
            io_bytes_per_second=io_bytes_per_second,
            log_start_offset=log.log_start_offset,
            transaction_indexes=[
                (segment.base_offset, segment.transaction_index.size)
                for segment in log.segments
                if segment.transaction_index.size
            ],
            last_epochs=traces.last_epochs,
            unsettled_producers=traces.unsettled,
        )

    def may_replace(self, group: CleanedGroup) -> bool:
        """Tell whether the log still has the segments that a group was made from."""
        log, bases = self._log, group.source_bases
        if not self.is_valid or bases[0] not in log.bases:
            return False
        at = log.bases.index(bases[0])
        there = log.segments[at : at + len(bases)]
        return there == [self._segments.get(base) for base in bases]

    def complete(self, report: CleaningReport) -> None:
        """Note that all groups are in place: the log is clean up to the report's end offset."""
        log, horizon_ms = self._log, report.counts.last_horizon_ms
        if self.is_valid:
            log.first_dirty_offset = max(log.first_dirty_offset, report.end_offset)
            log.last_horizon_ms = NEVER if horizon_ms == NO_TIMESTAMP else horizon_ms


def _newest_ms(log: SegmentedLog, segment: Segment) -> int:
    """Return the newest time, -1 if no setting needs it: it may cost a read of the disk."""
    if not log.config.min_compaction_lag_ms:
        return NO_TIMESTAMP
    timestamp = segment.largest_timestamp()
    return timestamp if timestamp != NO_TIMESTAMP else segment.modified_ms()


def _oldest_dirty_ms(log: SegmentedLog) -> int:
    """Return the first timestamp of the first sealed segment with dirty records."""
    for segment, next_base_offset in zip(log.segments, log.bases[1:], strict=False):
        if next_base_offset > log.first_dirty_offset and segment.size:
            return _first_ms(log, segment)
    return NO_TIMESTAMP


def _first_ms(log: SegmentedLog, segment: Segment) -> int:
    for _, header in walk_headers(log.disk, segment.file.read_fd, 0, segment.size):
        # An earlier cleaning that ended in this segment may have emptied its first batch.
        if header.records_count:
            return header.max_timestamp
    return NO_TIMESTAMP
