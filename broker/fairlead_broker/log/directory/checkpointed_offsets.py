"""The offsets of each log in the checkpoint files when the broker started.

The files name a log by topic and partition. If a log is deleted and created again before the next
checkpoint, the new log has the same name. With the old log's offsets its start would be above its
end, and recovery would skip records that were never fsynced. Therefore a log's directory gets a
file, `fairlead-checkpointed`, once the checkpoints are about *this* log. Without it the checkpoints
are not used, unless a clean stop has written them. If that file is lost, recovery only reads more.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from fairlead_broker.disk import Disk
from fairlead_broker.limits import NEWLY_CHECKPOINTED_LOGS_MAX
from fairlead_broker.log.directory.checkpoints import Checkpoints
from fairlead_broker.log.files.file_names import (
    CHECKPOINTED_MARK,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TOMBSTONE_CHECKPOINT,
)
from fairlead_broker.log.files.text_files import TopicPartition
from fairlead_broker.log.segmented_log import SegmentedLog

AnyLog = TypeVar("AnyLog", bound=SegmentedLog)


@dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """Offsets by partition; a log that is in no checkpoint file has none."""

    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    first_dirty_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    last_horizons_ms: dict[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def read(cls, checkpoints: Checkpoints) -> "CheckpointedOffsets":
        """Read all checkpoint files. OSError."""
        return cls(
            checkpoints.read(RECOVERY_POINT_CHECKPOINT),
            checkpoints.read(LOG_START_OFFSET_CHECKPOINT),
            checkpoints.read(HIGH_WATERMARK_CHECKPOINT),
            checkpoints.read(CLEANER_CHECKPOINT),
            checkpoints.read(TOMBSTONE_CHECKPOINT),
        )

    @property
    def _tables(self) -> tuple[dict[TopicPartition, int], ...]:
        return (
            self.recovery_points,
            self.log_start_offsets,
            self.high_watermarks,
            self.first_dirty_offsets,
            self.last_horizons_ms,
        )

    def of(self, keys: Container[TopicPartition]) -> "CheckpointedOffsets":
        """Return the offsets of some logs."""
        return CheckpointedOffsets(
            *({key: table[key] for key in table if key in keys} for table in self._tables)
        )

    def forget(self, key: TopicPartition) -> None:
        """Drop the offsets of a log."""
        for table in self._tables:
            table.pop(key, None)

    def missing(self, present: Container[TopicPartition]) -> list[TopicPartition]:
        """Return logs that were here at the last checkpoint and are not present now.

        Mostly an operator has removed their folders; sometimes a topic was deleted since then.
        """
        known = self.recovery_points.keys() | self.high_watermarks.keys()
        return sorted(key for key in known if key not in present)

    def forget_strangers(self, disk: Disk, directories: dict[TopicPartition, str]) -> None:
        """Drop the offsets of logs whose directories lack the `fairlead-checkpointed` file."""
        for key, directory in directories.items():
            try:
                is_marked = disk.exists(f"{directory}/{CHECKPOINTED_MARK}")
            except OSError:
                is_marked = True  # The log cannot be opened now; a later start checks again.
            if not is_marked:
                self.forget(key)


def not_yet_checkpointed(logs: Iterable[AnyLog]) -> list[AnyLog]:
    """Return new logs that the next checkpoint may contain; a later one gets the others."""
    return list(
        islice((log for log in logs if not log.is_checkpointed), NEWLY_CHECKPOINTED_LOGS_MAX)
    )
