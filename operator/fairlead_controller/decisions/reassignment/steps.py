"""The steps of one partition's reassignment: begin, finish, cancel. Pure, one record at a time.

Worked example, replicas 1 2 3, target 1 2 4:

    begin    replicas 1 2 4 3   adding 4   removing 3   isr 1 2 3     no leader changes
    4 joins  isr 1 2 3 4        every addition is in sync, so the same record finishes:
    finish   replicas 1 2 4     isr 1 2 4   unconfirmed removals 3, leader epoch + 1
    3 says that its data is gone: no unconfirmed removals

* The original replicas stay in the ISR until the end, so a source may die as on any day.
* It finishes once every addition is in sync, the ISR that is left is large enough to acknowledge
  records and no smaller than it was without the additions (unless the target is), and a member of
  it can lead (I15). Kafka asks for less: it leaves the partition without a leader, or below the
  minimum (KAFKA-15665).
* Another target while one runs counts from the original replicas, which therefore are never
  forgotten: a cancellation gives these back. Kafka's KRaft controller counts from all of them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from fairlead_controller.decisions.leader_election import ElectionReason, IsElectable, elect
from fairlead_controller.decisions.membership import Members, members_under_leader
from fairlead_model.ids import NO_LEADER, BrokerId
from fairlead_model.partition import PartitionRegistration

DirectoryOf = Callable[[BrokerId], str]

_CLEAN: Final = frozenset({ElectionReason.STAYS, ElectionReason.FIRST_IN_SYNC})


def as_next_of(
    before: PartitionRegistration, shape: PartitionRegistration
) -> PartitionRegistration:
    """Return the record after `before` that is like `shape` in all but its epochs."""
    return before.changed(
        replicas=shape.replicas,
        isr=shape.isr,
        leader=shape.leader,
        elr=shape.elr,
        last_known_elr=shape.last_known_elr,
        leader_recovery_state=shape.leader_recovery_state,
        adding_replicas=shape.adding_replicas,
        removing_replicas=shape.removing_replicas,
        directories=shape.directories,
        unconfirmed_removals=shape.unconfirmed_removals,
        queued_target=shape.queued_target,
    )


def with_target(
    partition: PartitionRegistration, target: Sequence[BrokerId], directory_of: DirectoryOf
) -> PartitionRegistration:
    """Return the shape of a record whose reassignment to `target` has begun; its epochs stay.

    Additions of an earlier target that this one drops leave at once, unless they are in sync or
    lead: these leave at the end, and count as long as the others.
    """
    original = partition.original_replicas
    dropped = [each for each in partition.adding_replicas if each not in target]
    needed = {partition.leader, *partition.isr, *partition.elr, *partition.last_known_elr}
    kept = [each for each in dropped if each in needed]
    staying = [each for each in original if each not in target]
    replicas = (*target, *staying, *kept)
    return _reshaped(
        replace(
            partition,
            adding_replicas=tuple([each for each in replicas if each not in original]),
            removing_replicas=(*staying, *kept),
            queued_target=(),
        ),
        replicas,
        directory_of,
    )


def _reshaped(
    partition: PartitionRegistration,
    replicas: tuple[BrokerId, ...],
    directory_of: DirectoryOf | None = None,
) -> PartitionRegistration:
    """Return the record with other replicas, everything else cut to these."""
    directories = partition.directories or ("",) * len(partition.replicas)
    known = dict(zip(partition.replicas, directories, strict=True))
    for each in replicas:
        if each not in known and directory_of is not None:
            known[each] = directory_of(each)
    directories = tuple([known.get(each, "") for each in replicas])
    removed = (*partition.unconfirmed_removals, *partition.replicas)
    return replace(
        partition,
        replicas=replicas,
        isr=_within(replicas, partition.isr),
        elr=_within(replicas, partition.elr),
        last_known_elr=_within(replicas, partition.last_known_elr),
        directories=directories if any(directories) else (),
        # A replica that is added again keeps what it still has of the log, instead of deleting it.
        unconfirmed_removals=tuple([each for each in removed if each not in replicas]),
    )


def _within(replicas: tuple[BrokerId, ...], members: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple([each for each in replicas if each in members])


def finished(
    partition: PartitionRegistration, is_electable: IsElectable
) -> PartitionRegistration | None:
    """Return the shape of the record after its reassignment; None while it cannot be finished."""
    target = partition.target_replicas
    in_sync = set(partition.isr)
    if not in_sync.issuperset(set(target).intersection(partition.adding_replicas)):
        return None
    original = partition.original_replicas
    if len(target) < len(original) and not in_sync.issuperset(target):
        return None
    left = in_sync.intersection(target)
    before = in_sync.intersection(original)
    minimum = min(partition.min_insync_replicas, len(target))
    if len(left) < max(minimum, min(len(before), len(target))):
        return None
    shape = _reshaped(
        replace(partition, adding_replicas=(), removing_replicas=()),
        target,
    )
    return _led(shape, is_electable)


def _led(shape: PartitionRegistration, is_electable: IsElectable) -> PartitionRegistration | None:
    """Return the shape under an in-sync leader; None if no replica can lead."""
    members = Members(shape.isr, shape.elr, shape.last_known_elr)
    outcome = elect(shape, members_under_leader(shape, members), is_electable)
    if outcome.partition.leader == NO_LEADER or outcome.reason not in _CLEAN:
        return None
    return outcome.partition


def cancelled(
    partition: PartitionRegistration, is_electable: IsElectable
) -> PartitionRegistration | None:
    """Return the shape of the record without its reassignment; None if that could lose records.

    The rest of the ISR has to be large enough to acknowledge records, or as large as it was, and a
    member of it has to lead. If there is no leader now, the replica for which the partition waits
    has to stay (KAFKA-14424).
    """
    original = partition.original_replicas
    left = _within(original, partition.isr)
    needed = min(partition.effective_min_isr, len(partition.isr))
    shape = _reshaped(
        replace(partition, adding_replicas=(), removing_replicas=(), queued_target=()), original
    )
    if not partition.has_leader:
        lost = set(partition.isr + partition.elr + partition.last_known_elr) - set(original)
        return None if lost else shape
    return None if len(left) < needed else _led(shape, is_electable)
