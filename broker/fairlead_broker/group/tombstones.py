"""How tombstones get into the log: in pieces that fit into a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.group.writes import TombstonesWrite
from fairlead_broker.limits import (
    TOMBSTONE_BYTES_MAX,
    TOMBSTONES_PER_WRITE,
    TOMBSTONES_PER_WRITE_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead_broker.coordinator.runtime import CoordinatorRuntime
    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_wire.errors import ErrorCode


def append_tombstones(
    runtime: CoordinatorRuntime[Any, Any],
    group: CoordinatedGroup,
    partitions: Sequence[tuple[str, int]],
    *,
    group_records: Sequence[tuple[bytes, bytes | None]] = (),
    on_committed: Callable[[CoordinatedGroup], None] | None = None,
    on_outcome: Callable[[ErrorCode], None] | None = None,
) -> None:
    """Remove offsets of a group, and in the last piece the group itself by its `group_records`.

    `on_outcome` is called once; `on_committed` also if the outcome was a time-out before.
    """
    # Each has the group's name, which is 32 KiB long at most, and a few bytes as a rule.
    each = TOMBSTONE_BYTES_MAX + len(group.group_id.encode())
    step = min(TOMBSTONES_PER_WRITE, TOMBSTONES_PER_WRITE_BYTES // each)
    pieces = [partitions[at : at + step] for at in range(0, len(partitions), step)] or [()]
    for number, piece in enumerate(pieces, start=1):
        is_last = number == len(pieces)
        write = TombstonesWrite(
            group,
            piece,
            group_records=group_records if is_last else (),
            on_committed=on_committed if is_last else None,
            on_outcome=on_outcome if is_last else None,
        )
        runtime.append(group.shard, write)
