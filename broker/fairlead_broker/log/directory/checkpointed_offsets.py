"""What the checkpoint files said of each log when the broker started.

They call a log by topic and partition, and so does a log that was deleted and made again in the
seconds before the next checkpoint: with its predecessor's offsets its start would lie above its
end, and recovery would not look at what was never fsynced. Therefore a log's directory gets a file,
`fairlead-checkpointed`, when the checkpoints speak of *it*; without it they are not believed,
unless a clean stop has written them. Where that file is lost, recovery only reads more.
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
    """By partition; a log of which no checkpoint file speaks has none."""

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
        """Return what is said of some logs."""
        return CheckpointedOffsets(
            *({key: table[key] for key in table if key in keys} for table in self._tables)
        )

    def forget(self, key: TopicPartition) -> None:
        """Drop what is said of a log."""
        for table in self._tables:
            table.pop(key, None)

    def missing(self, present: Container[TopicPartition]) -> list[TopicPartition]:
        """Return logs that were here at the last checkpoint and are not present now.

        Most often a folder that somebody has removed; a topic deleted since then, at times.
        """
        known = self.recovery_points.keys() | self.high_watermarks.keys()
        return sorted(key for key in known if key not in present)

    def forget_strangers(self, disk: Disk, directories: dict[TopicPartition, str]) -> None:
        """Drop what is said of logs whose directories do not say that it is of them."""
        for key, directory in directories.items():
            try:
                is_marked = disk.exists(f"{directory}/{CHECKPOINTED_MARK}")
            except OSError:
                is_marked = True  # It cannot be opened; a start that can asks again.
            if not is_marked:
                self.forget(key)


def not_yet_checkpointed(logs: Iterable[AnyLog]) -> list[AnyLog]:
    """Return logs that a checkpoint, begun now, may speak of first; others with the next one."""
    return list(
        islice((log for log in logs if not log.is_checkpointed), NEWLY_CHECKPOINTED_LOGS_MAX)
    )
