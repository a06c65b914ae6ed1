"""The record of one partition, as the controller keeps it and as brokers follow it."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from fairlead_model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionEpoch


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected from a replica known to hold every acknowledged record."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """One partition; only the controller makes new versions of it.

    `changed` is the one way to make the next version: it raises `partition_epoch` by one (I6),
    and `leader_epoch` by one when the leader differs, also when there is none any more (I3).
    """

    replicas: tuple[BrokerId, ...]
    """Brokers that hold the partition, preferred leader first."""
    isr: tuple[BrokerId, ...]
    """In-sync replicas, a subset of `replicas`; the last one stays recorded when it is gone, and
    leaves only if it comes back unclean."""
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = 0
    partition_epoch: PartitionEpoch = 0
    elr: tuple[BrokerId, ...] = ()
    """Eligible replicas outside the ISR: they hold everything below the high watermark."""
    last_known_elr: tuple[BrokerId, ...] = ()
    """Replicas that were in sync or eligible until they came back unclean."""
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    directories: tuple[str, ...] = ()
    """Disk incarnation of each replica, in the order of `replicas`; empty where unknown."""
    min_insync_replicas: int = 1
    """Effective `min.insync.replicas`, kept here so that one compare-and-swap covers it."""

    @property
    def has_leader(self) -> bool:
        """True if some broker leads the partition."""
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> BrokerId:
        """The first replica of the assignment."""
        return self.replicas[0]

    @property
    def is_under_replicated(self) -> bool:
        """True if fewer replicas are in sync than the assignment asks for, or nobody leads."""
        return not self.has_leader or len(self.isr) < len(self.replicas)

    @property
    def effective_min_isr(self) -> int:
        """In-sync replicas without which the high watermark stands still; all, if those are fewer.

        While the ISR is smaller, members that leave it stay eligible: nothing is acknowledged
        without them that they do not hold.
        """
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def awaits_recovery(self) -> bool:
        """True if no replica is known to hold every acknowledged record.

        Then each broker with a replica reports how far its log goes (`report_logs`), and the
        fullest log leads once every replica in `last_known_elr` is back.
        """
        return not self.has_leader and not self.isr and not self.elr

    def changed(self, **fields: Any) -> "PartitionRegistration":
        """Give the next version of the record, or this one when nothing differs."""
        if all(getattr(self, name) == value for name, value in fields.items()):
            return self
        leader_changes = fields.get("leader", self.leader) != self.leader
        return replace(
            self,
            leader_epoch=self.leader_epoch + int(leader_changes),
            partition_epoch=self.partition_epoch + 1,
            **fields,
        )

    def problems(self) -> list[str]:
        """Name every broken rule of the record (I5 and the shape of its fields)."""
        found = []
        members = set(self.replicas)
        if not members or len(members) != len(self.replicas):
            found.append(f"replicas {self.replicas} are empty or repeat themselves")
        if not set(self.isr) <= members:
            found.append(f"isr {self.isr} is not within the replicas {self.replicas}")
        if self.has_leader and self.leader not in self.isr:
            found.append(f"leader {self.leader} is not in the isr {self.isr}")
        if not set(self.elr) <= members - set(self.isr):
            found.append(f"elr {self.elr} overlaps the isr or leaves the replicas")
        if self.directories and len(self.directories) != len(self.replicas):
            found.append(f"{len(self.directories)} directories for {len(self.replicas)} replicas")
        if self.leader_epoch < 0 or self.partition_epoch < 0:
            found.append("an epoch is negative")
        return found
