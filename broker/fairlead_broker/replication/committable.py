"""How much of a leader's own log counts for the high watermark, by `flush.messages`. Pure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_broker.replication.replica_log import ReplicaLog


def awaits_flush(log: "ReplicaLog") -> bool:
    """Tell whether acknowledgements wait until the log is fsynced."""
    return log.unflushed_messages >= log.config.flush_messages


def committable_offset(log: "ReplicaLog") -> int:
    """Return the end offset with which this replica counts for the high watermark.

    If a flush is due by `flush.messages`, only flushed records count. A lower offset than before
    does not lower the high watermark.
    """
    return log.recovery_point if awaits_flush(log) else log.log_end_offset
