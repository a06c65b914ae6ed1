"""The leader epochs of a log, without its records."""

from dataclasses import dataclass

from fairlead_broker.log.leader_epochs import EpochEndOffset, LeaderEpochs


@dataclass
class History:
    """`EpochHistory` without records."""

    epochs: LeaderEpochs
    log_end_offset: int
    log_start_offset: int = 0

    @property
    def last_leader_epoch(self) -> int:
        return self.epochs.last_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)
