"""The configs of one log, resolved: the topic's overrides, else the broker's defaults.

`config_values.resolve_log_config` builds a `LogConfig`; only `fairlead_broker.log` reads it. Units
are in the names; -1 means unlimited where Kafka says so, and `NEVER` stands for "no such event".
"""

from dataclasses import dataclass
from typing import Final

NEVER: Final = 2**63 - 1
"""Kafka's value of flush and lag settings for "never" (Long.MAX_VALUE)."""
PRODUCERS_CODEC: Final = "producer"
"""The `compression.type` that stores batches as the producer sent them."""

_AFTER_MAX_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a log must know of its topic; the names and defaults are those of Kafka 4.3."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = NEVER
    message_timestamp_after_max_ms: int = _AFTER_MAX_MS
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_insync_replicas: int = 1
    preallocate: bool = False
    producer_id_expiration_ms: int = 86_400_000
    compression_type: str = PRODUCERS_CODEC
    gzip_level: int = -1
    zstd_level: int = 3

    @property
    def is_log_append_time(self) -> bool:
        """True if the broker's clock, not the producer's, sets the timestamps of batches."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def limits_timestamps(self) -> bool:
        """True if the limits of producers' timestamps are not the defaults."""
        return (
            self.message_timestamp_before_max_ms != NEVER
            or self.message_timestamp_after_max_ms != _AFTER_MAX_MS
        )

    @property
    def is_compacted(self) -> bool:
        """True if compaction keeps only the last record of each key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_by_retention(self) -> bool:
        """True if the broker deletes old segments, whether or not it also compacts the log."""
        return "delete" in self.cleanup_policy
