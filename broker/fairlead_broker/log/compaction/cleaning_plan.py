"""Which log to compact, how far, and which of its segments become one. Pure.

A log is *clean* up to its first dirty offset: no key occurs twice there. The rest is *dirty*, up to
where compaction has to stop. It stops at the last stable offset (records that are not committed, or
belong to an open transaction, may still disappear), at the recovery point (only records that are on
the device are replaced), at the active segment, and at the first segment with a record that is
younger than `min.compaction.lag.ms`. A log is due when enough of it is dirty
(`min.cleanable.dirty.ratio`), when a dirty record has waited for `max.compaction.lag.ms`, or when
tombstones or markers may be removed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairlead_broker.limits import CLEANER_ROOM_LEFT_BYTES
from fairlead_model.configs.log_config import NEVER, LogConfig
from fairlead_wire.record_batch import NO_TIMESTAMP

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class SegmentFacts(NamedTuple):
    """The facts on a sealed segment that a plan needs; -1 for an unknown time."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    newest_ms: int
    next_base_offset: int


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts on one log that a plan needs. `segments` are the sealed ones, oldest first."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    first_dirty_offset: int
    stable_offset: int
    """Everything below is committed and belongs to no open transaction."""
    high_watermark: int
    recovery_point: int
    oldest_dirty_ms: int = NO_TIMESTAMP
    """When the first dirty segment began; known only if `max.compaction.lag.ms` is set."""
    last_horizon_ms: int = NEVER
    """When the last tombstone or marker of the clean part may be removed. Not the first one: while
    a log is written to, it is compacted now and then, and that removes tombstones as well."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """`segments` of a log to clean; the dirty part begins at `first_dirty_offset`.

    Nothing below `high_watermark` can be truncated any more.
    """

    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    high_watermark: int
    dirty_ratio: float
    is_overdue: bool
    """True if a record, a tombstone or a marker has waited longer than it should."""


def first_dirty_offset(checkpointed: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return where the dirty part of a log begins.

    `checkpointed` may be from another log of this name.
    """
    if not log_start_offset <= checkpointed <= log_end_offset:
        return log_start_offset
    return checkpointed


def plan_cleaning(facts: LogFacts, config: LogConfig, now_ms: int) -> CleaningPlan | None:
    """Return what to clean now, None if the log is not due."""
    limit = min(facts.stable_offset, facts.recovery_point)
    dirty_from = max(facts.first_dirty_offset, facts.log_start_offset)
    segments: list[SegmentFacts] = []
    clean_bytes = dirty_bytes = 0
    for segment in facts.segments:
        if segment.next_base_offset > limit:
            break
        if segment.next_base_offset <= dirty_from:
            clean_bytes += segment.size
        else:
            if _is_too_young(segment, config, now_ms):
                break
            dirty_bytes += segment.size
        segments.append(segment)
    if not segments:
        return None
    removals_are_due = facts.last_horizon_ms <= now_ms
    if dirty_bytes == 0 and not removals_are_due:
        return None
    ratio = dirty_bytes / max(clean_bytes + dirty_bytes, 1)
    is_overdue = removals_are_due or (dirty_bytes > 0 and _waited_too_long(facts, config, now_ms))
    if ratio < config.min_cleanable_dirty_ratio and not is_overdue:
        return None
    return CleaningPlan(tuple(segments), dirty_from, facts.high_watermark, ratio, is_overdue)


def must_roll(first_ms: int, config: LogConfig, now_ms: int, *, is_empty: bool) -> bool:
    """Tell whether the active segment has kept a record from compaction for too long."""
    lag_ms = config.max_compaction_lag_ms
    return not is_empty and lag_ms != NEVER and first_ms >= 0 and now_ms - first_ms > lag_ms


def group_segments(
    segments: Iterable[SegmentFacts], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SegmentFacts]]:
    """Return groups of neighbours that fit into one segment: bytes, index entries and offsets."""
    groups: list[list[SegmentFacts]] = []
    size = index_size = time_index_size = 0
    for segment in segments:
        if (
            not groups
            or size + segment.size > segment_bytes
            or index_size + segment.index_size > segment_index_bytes
            or time_index_size + segment.time_index_size > segment_index_bytes
            or segment.next_base_offset - 1 - groups[-1][0].base_offset > RELATIVE_OFFSET_MAX
        ):
            groups.append([])
            size = index_size = time_index_size = 0
        groups[-1].append(segment)
        size += segment.size
        index_size += segment.index_size
        time_index_size += segment.time_index_size
    return groups


def room_needed(group: Iterable[SegmentFacts]) -> int:
    """Return bytes that must be free before a group is rewritten.

    The old files stay until the new ones are in place, and for `file.delete.delay.ms` after that.
    In the worst case no record is removed and the new files are as large. CLEANER_ROOM_LEFT_BYTES
    then remain for appends: a log without room goes offline, a log that is not compacted only
    grows.
    """
    rewritten = sum(each.size + each.index_size + each.time_index_size for each in group)
    return rewritten + CLEANER_ROOM_LEFT_BYTES


def _is_too_young(segment: SegmentFacts, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.newest_ms > now_ms - lag_ms


def _waited_too_long(facts: LogFacts, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.max_compaction_lag_ms
    return lag_ms != NEVER and 0 <= facts.oldest_dirty_ms < now_ms - lag_ms
