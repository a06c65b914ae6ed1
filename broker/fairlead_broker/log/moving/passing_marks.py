"""What the checkpoints of a log directory say of a log that is about to come, or about to go. Pure.

The checkpoints of the directory that a log comes to have to speak of it before it is there, and
those of the one that it leaves until it has left for good: a crash may leave it in either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fairlead_broker.log.segmented_log import SegmentedLog


class PassingMarks(NamedTuple):
    """Marks of one log as of one moment; a recovery point that holds in both directories."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    first_dirty_offset: int
    last_horizon_ms: int

    @classmethod
    def of(cls, log: SegmentedLog, recovery_point: int, high_watermark: int) -> PassingMarks:
        """Return those of a log."""
        return cls(
            recovery_point,
            log.log_start_offset,
            high_watermark,
            log.first_dirty_offset,
            log.last_horizon_ms,
        )

    def still_holds(self, log: SegmentedLog) -> bool:
        """Tell whether the log has them still. A high watermark that lags behind does no harm."""
        return (
            self.log_start_offset == log.log_start_offset
            and self.first_dirty_offset == log.first_dirty_offset
            and self.last_horizon_ms == log.last_horizon_ms
        )
