"""What the checkpoints of a log directory say of a log that moves to it, or away from it. Pure.

The checkpoints of the target directory must have the log before it is there. Those of the source
must have it until it has left for good: after a crash the log may be in either directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fairlead_broker.log.segmented_log import SegmentedLog


class PassingMarks(NamedTuple):
    """The marks of one log at one moment; the recovery point is valid in both directories."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    first_dirty_offset: int
    last_horizon_ms: int

    @classmethod
    def of(cls, log: SegmentedLog, recovery_point: int, high_watermark: int) -> PassingMarks:
        """Return the marks of a log."""
        return cls(
            recovery_point,
            log.log_start_offset,
            high_watermark,
            log.first_dirty_offset,
            log.last_horizon_ms,
        )

    def still_holds(self, log: SegmentedLog) -> bool:
        """Tell whether the log still has these marks. An older high watermark does no harm."""
        return (
            self.log_start_offset == log.log_start_offset
            and self.first_dirty_offset == log.first_dirty_offset
            and self.last_horizon_ms == log.last_horizon_ms
        )
