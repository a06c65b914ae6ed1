"""What a start found in a data directory, and which replicas may have lost records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead_broker.log.files.text_files import TopicPartition
from fairlead_broker.log.recovery.log_recovery import RecoveryReport
from fairlead_broker.log.recovery.pool import RecoveryOutcome


@dataclass(slots=True)
class LoadReport:
    """What `load` found."""

    loaded: int = 0
    recovered: dict[TopicPartition, RecoveryReport] = field(default_factory=dict)
    offline: dict[TopicPartition, str] = field(default_factory=dict)
    missing: list[TopicPartition] = field(default_factory=list)
    """Logs that are in the checkpoints but do not exist."""
    foreign: list[str] = field(default_factory=list)
    """Directories that are not logs of this broker; they are left unchanged."""
    recovery_processes_lost: int = 0
    """Child processes that died while they recovered a log."""
    write_back_error: OSError | None = None
    """The kernel lost data that this or an earlier process had written to this disk."""

    def take_in(self, outcome: RecoveryOutcome, directories: Mapping[TopicPartition, str]) -> None:
        """Add the results of recovery for these directories of logs."""
        self.recovery_processes_lost = outcome.children_lost
        for key, directory in directories.items():
            if directory in outcome.errors:
                self.offline[key] = outcome.errors[directory]
            else:
                self.recovered[key] = outcome.reports[directory]

    def add(self, other: "LoadReport") -> None:
        """Add the report of another directory."""
        self.loaded += other.loaded
        self.recovered |= other.recovered
        self.offline |= other.offline
        self.missing += other.missing
        self.foreign += other.foreign
        self.recovery_processes_lost += other.recovery_processes_lost
        self.write_back_error = self.write_back_error or other.write_back_error

    @property
    def is_whole(self) -> bool:
        """True if recovery found at most a torn last batch in each log, and the disk works."""
        return self.write_back_error is None and not any(
            report.is_unclean for report in self.recovered.values()
        )

    @property
    def unclean(self) -> list[TopicPartition]:
        """Replicas that may have lost acknowledged records, however the last process ended."""
        damaged = [key for key, report in self.recovered.items() if report.is_unclean]
        return sorted({*self.offline, *damaged, *self.missing})
