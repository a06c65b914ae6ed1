"""How offsets and groups go: by request, with their topic, or because nobody came back for them.

Whatever goes is a tombstone in the log first, after all commits that were appended before it, and
is gone from memory when that is committed: so memory stays what a replay of the log would give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.writes import GroupRecordWrite, OffsetsWrite, TombstonesWrite
from fairlead_broker.limits import TOMBSTONES_PER_WRITE
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.coordinator import GroupCoordinator
    from fairlead_broker.group.shard import Shard

Partitions = list[tuple[str, int]]


def delete_group(
    coordinator: GroupCoordinator,
    group: CoordinatedGroup,
    on_outcome: Callable[[ErrorCode], None],
) -> None:
    """Delete an empty group with all its offsets; NON_EMPTY_GROUP while it has members."""
    code, effects = group.classic.delete()
    if code is not ErrorCode.NONE:
        on_outcome(code)
        return
    (group_write,) = effects.writes
    clock = coordinator.clock

    def settle(outcome: ErrorCode) -> None:
        effects = group.classic.written(
            group_write, outcome, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        coordinator.carry_out(group, effects)
        on_outcome(outcome)

    partitions = there(group)
    coordinator.metrics.offset_deletions += len(partitions)
    _append(coordinator, group, partitions, with_group=True, on_outcome=settle)


def delete_offsets(
    coordinator: GroupCoordinator,
    group: CoordinatedGroup,
    partitions: Partitions,
    on_outcome: Callable[[ErrorCode], None],
) -> None:
    """Delete those of these offsets that there are."""
    known = set(there(group))
    found = [partition for partition in partitions if partition in known]
    coordinator.metrics.offset_deletions += len(found)
    if found:
        _append(coordinator, group, found, with_group=False, on_outcome=on_outcome)
    else:
        on_outcome(ErrorCode.NONE)


class StaleOffsets(NamedTuple):
    """What a group had committed for a topic when that was deleted."""

    group: CoordinatedGroup
    topic: str
    values: dict[int, bytes]


def stale_offsets(
    coordinator: GroupCoordinator, shard: Shard, topics: Collection[str]
) -> list[StaleOffsets]:
    """Topics are deleted: what groups have committed for them means nothing any more.

    It is noted now and removed by and by (`remove_stale`), because many groups may have a lot; a
    topic of the same name that is made meanwhile keeps its offsets.
    """
    stale = []
    for group in shard.groups.values():
        for name in [each for each in group.offsets.topics if each in topics]:
            if group.commits_in_flight:
                # Those are for the topic that is gone, too: their tombstones must follow them.
                partitions = [each for each in there(group) if each[0] == name]
                coordinator.metrics.offset_deletions += len(partitions)
                _append(coordinator, group, partitions, with_group=False, on_outcome=None)
            else:
                values = dict(group.offsets.topics[name].values)
                stale.append(StaleOffsets(group, name, values))
    return stale


def remove_stale(coordinator: GroupCoordinator, stale: StaleOffsets) -> None:
    """Write tombstones for what still is as it was noted."""
    group, name, values = stale
    topic = group.offsets.topics.get(name)
    if group.is_gone or topic is None:
        return
    newer = set(pending_offsets(group))
    partitions = [
        (name, partition)
        for partition, value in values.items()
        if topic.values.get(partition) is value and (name, partition) not in newer
    ]
    coordinator.metrics.offset_deletions += len(partitions)
    if partitions:
        _append(coordinator, group, partitions, with_group=False, on_outcome=None)


def expire(
    coordinator: GroupCoordinator, group: CoordinatedGroup, *, now_ms: int, retention_ms: int
) -> None:
    """Remove offsets whose retention is over, and a group that is empty and has none left (R21).

    `now_ms` is wall time.
    """
    classic = group.classic
    if classic.state is GroupState.DEAD:
        return
    expired: Sequence[tuple[str, int]] = ()
    if group.offsets:
        expired = group.offsets.expired(
            coordinator.subscriptions(group), now_ms=now_ms, retention_ms=retention_ms
        )
        if expired:
            pending = set(pending_offsets(group))
            expired = [each for each in expired if each not in pending]
    if len(expired) == len(group.offsets) and classic.state is GroupState.EMPTY:
        if not pending_offsets(group) and not classic.pending:
            delete_group(coordinator, group, _ignore)
            coordinator.metrics.offset_deletions -= len(expired)
            coordinator.metrics.offset_expirations += len(expired)
    elif expired:
        coordinator.metrics.offset_expirations += len(expired)
        _append(coordinator, group, expired, with_group=False, on_outcome=None)


def there(group: CoordinatedGroup) -> Partitions:
    """Topic and partition of all offsets of a group, those on their way included."""
    return list(dict.fromkeys([*group.offsets.partitions(), *pending_offsets(group)]))


def pending_offsets(group: CoordinatedGroup) -> Partitions:
    """Topic and partition of commits that are on their way."""
    if not group.commits_in_flight:
        return []
    return [
        (name, partition)
        for write in group.shard.uncommitted()
        if isinstance(write, OffsetsWrite) and write.group is group
        for name, partition, _ in write.offsets
    ]


def has_record_on_its_way(group: CoordinatedGroup) -> bool:
    """Whether the group has written of itself what is not committed yet."""
    return any(
        isinstance(write, GroupRecordWrite) and write.group is group
        for write in group.shard.uncommitted()
    )


def _append(
    coordinator: GroupCoordinator,
    group: CoordinatedGroup,
    partitions: Sequence[tuple[str, int]],
    *,
    with_group: bool,
    on_outcome: Callable[[ErrorCode], None] | None,
) -> None:
    """In pieces that fit into a batch; the last one tells the outcome, and has the group's."""
    pieces = [
        partitions[at : at + TOMBSTONES_PER_WRITE]
        for at in range(0, len(partitions), TOMBSTONES_PER_WRITE)
    ] or [()]
    for number, piece in enumerate(pieces, start=1):
        is_last = number == len(pieces)
        write = TombstonesWrite(
            group,
            piece,
            with_group=with_group and is_last,
            on_committed=coordinator.on_deleted if with_group and is_last else None,
            on_outcome=on_outcome if is_last else None,
        )
        coordinator.append(group.shard, write)


def _ignore(code: ErrorCode) -> None:
    """Nobody waits: what failed comes up in the next round."""
