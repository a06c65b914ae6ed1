"""The effect of a loss on one consumer group. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_model.ids import NO_LEADER

if TYPE_CHECKING:
    from fairlead_controller.decisions.what_if import PartitionForecast

OFFSETS_TOPIC = "__consumer_offsets"


def build_row(
    group: str,
    reads: set[tuple[str, int]],
    affected: dict[tuple[str, int], PartitionForecast],
    offsets_partitions: int,
) -> dict[str, Any] | None:
    """Return the effect on a group; None if there is none."""
    mine = [affected[at] for at in sorted(reads) if at in affected]
    moving = [each for each in mine if each.changes_leader]
    coordinator = None
    if offsets_partitions:
        at = (OFFSETS_TOPIC, coordinator_partition(group, offsets_partitions))
        home = affected.get(at)
        if home is not None and home.changes_leader:
            coordinator = {
                "from": home.before.leader,
                "to": None if home.after.leader == NO_LEADER else home.after.leader,
            }
    if not moving and coordinator is None:
        return None
    return {
        "partitions": len(moving),
        "withoutLeader": sum(each.loses_leader for each in mine),
        "coordinator": coordinator,
    }
