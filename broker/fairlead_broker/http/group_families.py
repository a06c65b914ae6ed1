"""What Prometheus is told of the groups that are coordinated here, in sums: never a group's id."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.shard import ShardState
from fairlead_broker.limits import METRIC_GROUPS_A_TURN

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.exposition import Exposition

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"


@dataclass(slots=True)
class GroupSums:
    """What one walk over the groups found."""

    states: dict[GroupState, int] = field(default_factory=lambda: dict.fromkeys(GroupState, 0))
    offsets: int = 0
    shards: dict[ShardState, int] = field(default_factory=lambda: dict.fromkeys(ShardState, 0))


async def measure_groups(broker: Broker) -> GroupSums:
    """Count, in slices of a turn of the loop."""
    sums = GroupSums()
    coordinator = broker.group_coordinator
    for shard in coordinator.shards.values():
        sums.shards[shard.state] += 1
    for number, group in enumerate(list(coordinator.groups.values()), start=1):
        sums.states[group.classic.state] += 1
        sums.offsets += len(group.offsets)
        if number % METRIC_GROUPS_A_TURN == 0:
            await asyncio.sleep(0)
    return sums


def expose_groups(out: Exposition, broker: Broker, sums: GroupSums) -> None:
    """Add Kafka's metrics of a group coordinator, and how its partitions are."""
    metrics = broker.group_coordinator.metrics
    out.one(f"{_MANAGER}_numgroups", "gauge", "Groups here.", sum(sums.states.values()))
    for state, count in sums.states.items():
        name = f"{_MANAGER}_numgroups{state.value.lower()}"
        out.one(name, "gauge", f"Groups that are {state.value}.", count)
    out.one(f"{_MANAGER}_numoffsets", "gauge", "Committed offsets here.", sums.offsets)
    for name, meaning, value in (
        ("offset_commit_count", "Offsets committed.", metrics.offset_commits),
        ("offset_expiration_count", "Offsets removed by age.", metrics.offset_expirations),
        ("offset_deletion_count", "Offsets removed otherwise.", metrics.offset_deletions),
    ):
        out.one(f"{_COORDINATOR}_{name}", "counter", meaning, value)
    average_ms = metrics.load_time_ms_sum / metrics.loads if metrics.loads else 0
    for name, meaning, gauge in (
        ("partition_load_time_max", "Slowest load of a partition, ms.", metrics.load_time_ms_max),
        ("partition_load_time_avg", "Average load of a partition, ms.", average_ms),
    ):
        out.one(f"{_COORDINATOR}_{name}", "gauge", meaning, gauge)
    for stage in (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED):
        name = f"{_COORDINATOR}_num_partitions_{stage.value}"
        out.one(name, "gauge", f"Partitions of groups: {stage.value}.", sums.shards[stage])
    out.one(
        "fairlead_parked_group_members",
        "gauge",
        "Joins and syncs that wait for other members.",
        broker.group_coordinator.parked_count,
    )
    out.one(
        "fairlead_group_member_bytes",
        "gauge",
        "Memory of the members of all groups, about.",
        broker.group_coordinator.memory.total_bytes,
    )
