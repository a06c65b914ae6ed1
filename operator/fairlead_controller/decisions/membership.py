"""Which replicas are in the ISR or eligible (ELR, KIP-966). Pure, one partition at a time.

* The ISR holds every acknowledged record. A broker that stops or dies leaves it, except as its last
  member: it stays recorded, and the partition waits for it without a leader.
* While nobody leads, or the ISR is smaller than the effective `min.insync.replicas`, the high
  watermark stands still; so a replica that leaves the ISR then is still *eligible* (ELR): it has
  all acknowledged records. Once a leader has a large enough ISR, the high watermark moves without
  the eligible ones, and they are forgotten in the step that makes it so.
* A replica that comes back unclean may lack anything. It leaves ISR and ELR, even as the last, and
  is kept in `last_known_elr` (R15): one of those that may hold acknowledged records if all others
  fail.

Worked example, replicas 1 2 3, min.insync.replicas 2:

    isr 1 2 3            all is well
    3 dies   isr 1 2     two are enough: 3 is forgotten
    2 dies   isr 1       below two, nothing is acknowledged any more: elr 2
    1 dies   isr 1       the last one stays recorded; no leader
    2 back   isr 2       elected as eligible; elr 1
    1 back unclean       elr empty, last_known_elr 1
"""

from collections.abc import Collection
from dataclasses import dataclass

from fairlead_model.ids import BrokerId
from fairlead_model.partition import PartitionRegistration


@dataclass(frozen=True, slots=True)
class Members:
    """The three sets of a partition's record, each in the order of the assignment."""

    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


def present_members(partition: PartitionRegistration) -> Members:
    """Return the sets as they are."""
    return Members(partition.isr, partition.elr, partition.last_known_elr)


def members_with_isr(
    partition: PartitionRegistration,
    present: Members,
    isr: Collection[BrokerId],
    unclean: Collection[BrokerId] = (),
) -> Members:
    """Return the sets when the ISR becomes `isr` and some replicas are found unclean.

    This is for times in which the high watermark stands still; `members_under_leader` gives the
    sets once there is a leader.
    """
    in_sync = present.isr
    if set(isr) != set(in_sync):
        in_sync = _ordered(partition, set(isr))
    held = set(present.isr) | set(present.elr)
    eligible = held - set(isr) - set(unclean)
    doubtful = (held | set(present.last_known_elr)) - set(isr) - eligible
    return Members(in_sync, _ordered(partition, eligible), _ordered(partition, doubtful))


def members_under_leader(partition: PartitionRegistration, members: Members) -> Members:
    """Return the sets under a leader: with a large enough ISR no other replica stays eligible."""
    if len(members.isr) >= partition.effective_min_isr:
        return Members(members.isr)
    return members


def members_without(
    partition: PartitionRegistration, leaving: BrokerId, *, is_unclean: bool
) -> Members:
    """Return the sets when a broker is dead or, if unclean, back without some records."""
    present = present_members(partition)
    remaining = [broker_id for broker_id in partition.isr if broker_id != leaving]
    if is_unclean:
        return members_with_isr(partition, present, remaining, {leaving})
    return members_with_isr(partition, present, remaining or partition.isr)


def with_min_insync_replicas(
    partition: PartitionRegistration, minimum: int
) -> PartitionRegistration:
    """Return the next record under another `min.insync.replicas`.

    Under a leader the eligible replicas are removed in the same step. They were eligible because
    the old minimum stopped the high watermark, and the new one may let it advance without them.
    """
    if minimum == partition.min_insync_replicas:
        return partition
    if not partition.has_leader:
        return partition.changed(min_insync_replicas=minimum)
    is_enough = len(partition.isr) >= min(minimum, len(partition.replicas))
    doubtful = () if is_enough else partition.last_known_elr
    return partition.changed(min_insync_replicas=minimum, elr=(), last_known_elr=doubtful)


def _ordered(partition: PartitionRegistration, members: set[BrokerId]) -> tuple[BrokerId, ...]:
    if not members:
        return ()
    return tuple([broker_id for broker_id in partition.replicas if broker_id in members])
