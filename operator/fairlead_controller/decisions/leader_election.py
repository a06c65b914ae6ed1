"""Which replica leads a partition, and why. Pure, one partition at a time.

The order of choice is: the present leader, if it can stay; the first electable replica of the
assignment that is in sync; the first one that is eligible (ELR, KIP-966). All of these hold every
acknowledged record (I4). If no such replica comes back (each was found unclean), the replica with
the longest log is elected once all are back that may hold acknowledged records. The partition is
then `RECOVERING`, and records may be lost. A topic with `unclean.leader.election.enable` does
not wait for that (R16).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from fairlead_controller.decisions.membership import (
    Members,
    members_under_leader,
    members_with_isr,
    members_without,
    present_members,
)
from fairlead_model.ids import NO_LEADER, BrokerId
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration

IsElectable = Callable[[BrokerId], bool]


class ElectionReason(StrEnum):
    """Why a partition has the leader that it has."""

    STAYS = "the leader stays"
    FIRST_IN_SYNC = "first electable replica of the assignment that is in sync"
    FIRST_ELIGIBLE = "no in-sync replica is electable; first eligible one of the assignment"
    ONLY_REPLICA = (
        "the only replica did not stop cleanly, or the metadata was restored: acknowledged "
        "records may be lost"
    )
    FULLEST_LOG = (
        "every replica that may hold acknowledged records is back, but none stopped cleanly or "
        "the metadata was restored; this log goes furthest: acknowledged records may be lost"
    )
    UNCLEAN = (
        "unclean election: the fullest log of the electable replicas, as far as they have "
        "reported, else the first of the assignment; acknowledged records may be lost"
    )
    PREFERRED = "preferred leader: first of the assignment, and in sync"
    NOBODY = "no replica that may hold all acknowledged records is electable"

    @property
    def is_clean(self) -> bool:
        """Whether the leader is known to hold every acknowledged record."""
        return self not in _UNCLEAN_REASONS


_UNCLEAN_REASONS: Final = frozenset(
    {ElectionReason.ONLY_REPLICA, ElectionReason.FULLEST_LOG, ElectionReason.UNCLEAN}
)


@dataclass(frozen=True, slots=True, order=True)
class LogFacts:
    """The end of a log; the greater one holds more of what was acknowledged."""

    last_epoch: int
    log_end_offset: int


_UNKNOWN: Final = LogFacts(-1, -1)

NO_FACTS: Final[Mapping[BrokerId, LogFacts]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome for one partition."""

    leader: BrokerId
    reason: ElectionReason


@dataclass(frozen=True, slots=True)
class Outcome:
    """A partition's next record, which may be the present one, and why its leader leads."""

    partition: PartitionRegistration
    reason: ElectionReason


def elect_leader(
    partition: PartitionRegistration,
    is_electable: IsElectable,
    *,
    allows_unclean: bool = False,
    logs: Mapping[BrokerId, LogFacts] = NO_FACTS,
) -> Election:
    """Choose the leader of a partition; a leader that can stay does."""
    if partition.leader in partition.isr and is_electable(partition.leader):
        return Election(partition.leader, ElectionReason.STAYS)
    for candidates, reason in (
        (partition.isr, ElectionReason.FIRST_IN_SYNC),
        (partition.elr, ElectionReason.FIRST_ELIGIBLE),
    ):
        for broker_id in partition.replicas:
            if broker_id in candidates and is_electable(broker_id):
                return Election(broker_id, reason)
    return _elect_uncleanly(partition, is_electable, allows_unclean=allows_unclean, logs=logs)


def _elect_uncleanly(
    partition: PartitionRegistration,
    is_electable: IsElectable,
    *,
    allows_unclean: bool,
    logs: Mapping[BrokerId, LogFacts],
) -> Election:
    # Replicas that a reassignment adds come last: they may have almost no records yet.
    ordered = (*partition.original_replicas, *partition.adding_replicas)
    electable = [broker_id for broker_id in ordered if is_electable(broker_id)]
    if electable and not partition.isr and not partition.elr:
        if len(partition.replicas) == 1:
            return Election(electable[0], ElectionReason.ONLY_REPLICA)
        is_complete = set(partition.last_known_elr) <= set(electable)
        if is_complete and all(broker_id in logs for broker_id in electable):
            fullest = max(electable, key=lambda broker_id: logs[broker_id])
            return Election(fullest, ElectionReason.FULLEST_LOG)
    if electable and allows_unclean:
        fullest = max(electable, key=lambda broker_id: logs.get(broker_id, _UNKNOWN))
        return Election(fullest, ElectionReason.UNCLEAN)
    return Election(NO_LEADER, ElectionReason.NOBODY)


def elect(
    partition: PartitionRegistration,
    members: Members,
    is_electable: IsElectable,
    *,
    allows_unclean: bool = False,
    logs: Mapping[BrokerId, LogFacts] = NO_FACTS,
) -> Outcome:
    """Return the next record with these members, and a leader elected among them."""
    election = elect_leader(
        replace(
            partition,
            isr=members.isr,
            elr=members.elr,
            last_known_elr=members.last_known_elr,
        ),
        is_electable,
        allows_unclean=allows_unclean,
        logs=logs,
    )
    leader, reason = election.leader, election.reason
    if not reason.is_clean:
        # Its log is authoritative from now on; replicas with more or other records truncate to it.
        members = Members((leader,))
    elif leader != NO_LEADER and leader not in members.isr:
        # An eligible replica takes over alone: the others follow it before they count as in sync.
        members = members_with_isr(partition, members, (leader,))
    return Outcome(with_leader(partition, members, leader, is_clean=reason.is_clean), reason)


def with_leader(
    partition: PartitionRegistration, members: Members, leader: BrokerId, *, is_clean: bool = True
) -> PartitionRegistration:
    """Return the next record with these members and this leader, or the present record if equal."""
    recovery = partition.leader_recovery_state
    if leader != NO_LEADER:
        members = members_under_leader(partition, members)
    if leader not in {partition.leader, NO_LEADER}:
        recovery = LeaderRecoveryState.RECOVERED if is_clean else LeaderRecoveryState.RECOVERING
    return partition.changed(
        isr=members.isr,
        elr=members.elr,
        last_known_elr=members.last_known_elr,
        leader=leader,
        leader_recovery_state=recovery,
    )


def with_elected_leader(
    partition: PartitionRegistration, is_electable: IsElectable
) -> PartitionRegistration:
    """Return the next record after a clean election, or the present record if nothing changes."""
    return elect(partition, present_members(partition), is_electable).partition


def without_broker(
    partition: PartitionRegistration, leaving: BrokerId, is_electable: IsElectable
) -> PartitionRegistration:
    """Return the next record when a broker is dead or about to stop."""
    members = members_without(partition, leaving, is_unclean=False)
    return elect(partition, members, excluding(leaving, is_electable)).partition


def excluding(leaving: BrokerId, is_electable: IsElectable) -> IsElectable:
    """Return the predicate `is_electable` without one broker."""
    return lambda broker_id: broker_id != leaving and is_electable(broker_id)
