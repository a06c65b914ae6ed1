"""Metrics of log compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_broker.measures.broker_metrics import CleanerMetrics
    from fairlead_broker.measures.exposition import Exposition


def expose_compaction(out: Exposition, metrics: CleanerMetrics) -> None:
    """Add the work of the cleaner, and its failures."""
    for name, meaning, value in (
        ("runs", "Logs compacted.", metrics.runs),
        ("failures", "Compactions that failed; they are tried again.", metrics.failures),
        ("read_bytes", "Bytes that compaction read.", metrics.read_bytes),
        ("written_bytes", "Bytes that compaction wrote.", metrics.written_bytes),
        ("records_removed", "Records that compaction removed.", metrics.records_removed),
        ("null_keys_removed", "Of them, records without a key.", metrics.null_keys_removed),
    ):
        out.one(f"fairlead_cleaner_{name}_total", "counter", meaning, value)
    for name, meaning, gauge in (
        ("running", "1 while a log is being compacted.", metrics.is_running),
        ("last_run_seconds", "How long the last compaction took.", metrics.last_run_ms / 1000),
        ("dirty_ratio_max", "Largest dirty ratio of the logs due.", metrics.dirty_ratio_max),
        ("without_room", "Logs not compacted because the disk has no room.", metrics.without_room),
    ):
        out.one(f"fairlead_cleaner_{name}", "gauge", meaning, gauge)
    out.one(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "gauge",
        "Logs that are not compacted because they are damaged.",
        metrics.uncleanable,
    )
