"""Up to where a leader's own log counts for the high watermark, as `flush.messages` says. Pure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_broker.replication.replica_log import ReplicaLog


def awaits_flush(log: "ReplicaLog") -> bool:
    """Tell whether acknowledgements are held back until the log is fsynced."""
    return log.unflushed_messages >= log.config.flush_messages


def committable_offset(log: "ReplicaLog") -> int:
    """Return what this replica adds to the high watermark: its end.

    With `flush.messages` due only what is on the disk; a lower offset than before moves nothing.
    """
    return log.recovery_point if awaits_flush(log) else log.log_end_offset
