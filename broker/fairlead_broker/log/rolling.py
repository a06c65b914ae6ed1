"""Decides when a log starts its next segment. Pure."""

from zlib import crc32

from fairlead_broker.log.index.index_file import RELATIVE_OFFSET_MAX
from fairlead_broker.log.segment import Segment
from fairlead_model.configs.log_config import LogConfig


def should_roll(
    segment: Segment,
    config: LogConfig,
    *,
    size: int,
    last_offset: int,
    max_timestamp: int,
    now_ms: int,
    jitter_ms: int,
) -> bool:
    """Return True if a batch must not go into the active segment any more.

    The age of a segment is measured in the time of its records, as in Kafka: from the first batch's
    timestamp to this one's. Records without timestamps count by the clock. Otherwise a replay of
    last year's records, each older than `segment.ms`, would roll at every batch.
    """
    if segment.size == 0:
        return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
    if segment.size + size > config.segment_bytes:
        return True
    if segment.first_timestamp >= 0 and max_timestamp >= 0:
        age_ms = max_timestamp - segment.first_timestamp
    else:
        age_ms = now_ms - segment.created_ms
    if age_ms > _longest_age_ms(config) - jitter_ms:
        return True
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    return segment.is_index_full


def _longest_age_ms(config: LogConfig) -> int:
    """Return the age at which the active segment is rolled.

    The active segment is never compacted, so it has to be rolled before its records reach
    `max.compaction.lag.ms`.
    """
    if config.is_compacted:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms


def roll_jitter_ms(path: str, base_offset: int, config: LogConfig) -> int:
    """Return a share of `segment.jitter.ms` for each segment, so that not all roll at once.

    It comes from the name instead of a random number, so a restart does not change it. It never
    takes the whole age: with a jitter of hours, a topic that rolls every minute would get one
    segment for each batch.
    """
    jitter_ms = min(config.segment_jitter_ms, _longest_age_ms(config))
    if jitter_ms <= 0:
        return 0
    return crc32(f"{path}/{base_offset}".encode()) % jitter_ms
