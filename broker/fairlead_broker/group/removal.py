"""Removes offsets and groups: by request, or because they have expired.

A removal first writes a tombstone to the log, after all earlier commits, and changes memory when
that is committed. So memory always equals a replay of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.tombstones import append_tombstones
from fairlead_broker.group.writes import all_offsets, pending_offsets
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.coordinator import GroupCoordinator

Partitions = list[tuple[str, int]]


def delete_group(
    coordinator: GroupCoordinator,
    group: CoordinatedGroup,
    on_outcome: Callable[[ErrorCode], None],
) -> None:
    """Delete an empty group with all its offsets; NON_EMPTY_GROUP while it has members."""
    code, effects = group.protocol.delete()
    if code is not ErrorCode.NONE:
        on_outcome(code)
        return
    (group_write,) = effects.writes
    clock = coordinator.clock

    def settle(outcome: ErrorCode) -> None:
        effects = group.protocol.written(
            group_write, outcome, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        coordinator.carry_out(group, effects)
        on_outcome(outcome)

    if group_write.violation:
        coordinator.note_violation(group, group_write.violation)
        settle(ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    partitions = all_offsets(group)
    coordinator.metrics.offset_deletions += len(partitions)
    append_tombstones(
        coordinator.runtime,
        group,
        partitions,
        group_records=group_write.records,
        on_committed=coordinator.on_deleted,
        on_outcome=settle,
    )


def delete_offsets(
    coordinator: GroupCoordinator,
    group: CoordinatedGroup,
    partitions: Partitions,
    on_outcome: Callable[[ErrorCode], None],
) -> None:
    """Delete those of these offsets that there are."""
    known = set(all_offsets(group))
    found = [partition for partition in partitions if partition in known]
    coordinator.metrics.offset_deletions += len(found)
    if found:
        append_tombstones(coordinator.runtime, group, found, on_outcome=on_outcome)
    else:
        on_outcome(ErrorCode.NONE)


def expire(
    coordinator: GroupCoordinator, group: CoordinatedGroup, *, now_ms: int, retention_ms: int
) -> None:
    """Remove offsets whose retention is over, and a group that is empty and has none left (R21).

    `now_ms` is wall time.
    """
    protocol = group.protocol
    if protocol.is_dead:
        return
    expired: Sequence[tuple[str, int]] = ()
    if group.offsets:
        expired = group.offsets.expired(
            protocol.subscriptions(), now_ms=now_ms, retention_ms=retention_ms
        )
        if expired:
            newer = {*pending_offsets(group), *group.offsets.unstable()}
            expired = [each for each in expired if each not in newer]
    if len(expired) == len(group.offsets) and protocol.is_empty:
        is_awaited = group.offsets.open_transactions or protocol.awaits_members
        if not is_awaited and not pending_offsets(group):
            delete_group(coordinator, group, _ignore)
            coordinator.metrics.offset_deletions -= len(expired)
            coordinator.metrics.offset_expirations += len(expired)
    elif expired:
        coordinator.metrics.offset_expirations += len(expired)
        append_tombstones(coordinator.runtime, group, expired)


def _ignore(code: ErrorCode) -> None:
    """No request waits: the next round tries failed removals again."""
