"""The registration of one partition, as the controller keeps it and as brokers follow it."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from fairlead_model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionEpoch


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected from a replica known to have every acknowledged record."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """One partition; only the controller makes new versions of it.

    Only `changed` makes the next version. It raises `partition_epoch` by one (I6). It raises
    `leader_epoch` by one if the leader changes, also to none, and if a replica is removed (I3).

    While a reassignment runs, `replicas` has the target first and then all replicas that are to be
    removed (KIP-455). `adding_replicas` are those that the partition did not have before: a
    cancellation restores `replicas` without them. `removing_replicas` are those that are not in the
    target: `replicas` without them is the target. A replica that one target added and a later
    target drops is in both.
    """

    replicas: tuple[BrokerId, ...]
    """Brokers with a replica of the partition, preferred leader first."""
    isr: tuple[BrokerId, ...]
    """In-sync replicas, a subset of `replicas`. The last member stays recorded while it is down; it
    leaves only if it comes back unclean."""
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = 0
    partition_epoch: PartitionEpoch = 0
    elr: tuple[BrokerId, ...] = ()
    """Eligible leader replicas: not in the ISR, but they have all below the high watermark."""
    last_known_elr: tuple[BrokerId, ...] = ()
    """Replicas that were in the ISR or ELR until they came back unclean."""
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    directories: tuple[str, ...] = ()
    """Disk incarnation of each replica, in the order of `replicas`; empty if it is not known."""
    min_insync_replicas: int = 1
    """Effective `min.insync.replicas`, kept here so that one compare-and-swap covers it."""
    unconfirmed_removals: tuple[BrokerId, ...] = ()
    """Brokers from which a reassignment removed the partition. A broker in this list deletes its
    data; it leaves the list when it has confirmed that."""
    queued_target: tuple[BrokerId, ...] = ()
    """Target of a reassignment that waits for its turn. Only the controller knows it."""

    @property
    def has_leader(self) -> bool:
        """True if a broker leads the partition."""
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> BrokerId:
        """The first of the assigned replicas."""
        return self.replicas[0]

    @property
    def is_being_reassigned(self) -> bool:
        """True while replicas are added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas without those that a running reassignment adds."""
        if not self.adding_replicas:
            return self.replicas
        return tuple([each for each in self.replicas if each not in self.adding_replicas])

    @property
    def target_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas without those that a running reassignment removes."""
        if not self.removing_replicas:
            return self.replicas
        return tuple([each for each in self.replicas if each not in self.removing_replicas])

    @property
    def is_under_replicated(self) -> bool:
        """True if fewer replicas are in sync than the assignment asks for, or nobody leads.

        Replicas that are being added do not count yet.
        """
        return not self.has_leader or len(self.isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def effective_min_isr(self) -> int:
        """The smallest ISR with which the high watermark advances: at most all replicas.

        While the ISR is smaller, members that leave it stay eligible: nothing is acknowledged that
        they do not have. Replicas that are being added do not count.
        """
        return min(self.min_insync_replicas, len(self.replicas) - len(self.adding_replicas))

    @property
    def awaits_recovery(self) -> bool:
        """True if no replica is known to have every acknowledged record.

        Then each broker with a replica reports the end of its log (`report_logs`). Once every
        replica in `last_known_elr` is back, the fullest log becomes leader.
        """
        return not self.has_leader and not self.isr and not self.elr

    def changed(self, **fields: Any) -> "PartitionRegistration":
        """Return the next version of this registration, or this one if nothing differs."""
        if all(getattr(self, name) == value for name, value in fields.items()):
            return self
        leader_changes = fields.get("leader", self.leader) != self.leader
        # If a removed replica is added again, its log may be a different one by then. So the leader
        # must refuse its old fetches, which it does by their leader epoch.
        loses_replica = not set(self.replicas).issubset(fields.get("replicas", self.replicas))
        return replace(
            self,
            leader_epoch=self.leader_epoch + int(leader_changes or loses_replica),
            partition_epoch=self.partition_epoch + 1,
            **fields,
        )

    def problems_after(self, before: "PartitionRegistration") -> list[str]:
        """Return every rule that this version breaks as the successor of `before` (I3, I6)."""
        found = []
        if self.partition_epoch != before.partition_epoch + 1:
            found.append(f"partition epoch {self.partition_epoch} after {before.partition_epoch}")
        loses_replica = not set(before.replicas).issubset(self.replicas)
        if self.leader_epoch != before.leader_epoch + (
            self.leader != before.leader or loses_replica
        ):
            found.append(
                f"leader {self.leader} in leader epoch {self.leader_epoch} after leader "
                f"{before.leader} in {before.leader_epoch}, replicas {self.replicas} after "
                f"{before.replicas}"
            )
        return found

    def problems(self) -> list[str]:
        """Return every rule that the registration breaks (I5 and the shape of its fields)."""
        found = []
        replicas, isr = self.replicas, self.isr
        members = set(replicas)
        if not members or len(members) != len(replicas):
            found.append(f"replicas {replicas} are empty or repeat themselves")
        if not members.issuperset(isr) or len(set(isr)) != len(isr):
            found.append(f"isr {isr} is not within the replicas {replicas}")
        if self.leader != NO_LEADER and self.leader not in isr:
            found.append(f"leader {self.leader} is not in the isr {isr}")
        if self.elr and not set(self.elr) <= members.difference(isr):
            found.append(f"elr {self.elr} overlaps the isr or leaves the replicas")
        if self.last_known_elr and not members.issuperset(self.last_known_elr):
            found.append(f"last known elr {self.last_known_elr} leaves the replicas")
        if self.min_insync_replicas < 1:
            found.append(f"min.insync.replicas is {self.min_insync_replicas}")
        if self.directories and len(self.directories) != len(replicas):
            found.append(f"{len(self.directories)} directories for {len(replicas)} replicas")
        for name, moving in (
            ("adding", self.adding_replicas),
            ("removing", self.removing_replicas),
        ):
            if moving and not set(moving) < members:
                found.append(f"{name} {moving} is not a part of the replicas {replicas}")
        if self.unconfirmed_removals and not members.isdisjoint(self.unconfirmed_removals):
            found.append(f"replicas {replicas} are removed from {self.unconfirmed_removals}")
        if self.leader_epoch < 0 or self.partition_epoch < 0:
            found.append("an epoch is negative")
        return found
