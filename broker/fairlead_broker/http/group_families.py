"""Metrics of the groups that this broker coordinates, as sums: never with a group's id."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.group.group_types import GroupState
from fairlead_broker.limits import METRIC_GROUPS_A_TURN
from fairlead_broker.measures.exposition import label_set

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.group.coordinator import GroupCoordinator
    from fairlead_broker.measures.exposition import Exposition

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
_CONSUMER_STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
"""States of KIP-848's protocol, by Kafka's names."""


@dataclass(slots=True)
class GroupSums:
    """The results of one walk over the groups."""

    classic: Counter[str] = field(default_factory=Counter)
    """Number of groups of the classic protocol, by state."""
    consumer: Counter[str] = field(default_factory=Counter)
    """Number of groups of KIP-848's protocol, by state."""
    offsets: int = 0
    shards: dict[ShardState, int] = field(default_factory=lambda: dict.fromkeys(ShardState, 0))


async def measure_groups(broker: Broker) -> GroupSums:
    """Count groups, in slices of a turn of the loop."""
    sums = GroupSums()
    coordinator = broker.group_coordinator
    for shard in coordinator.runtime.shards.values():
        sums.shards[shard.state] += 1
    for number, group in enumerate(list(coordinator.groups.values()), start=1):
        protocol = group.protocol
        states = sums.classic if protocol.group_type == "classic" else sums.consumer
        states[protocol.state_name] += 1
        sums.offsets += len(group.offsets)
        if number % METRIC_GROUPS_A_TURN == 0:
            await asyncio.sleep(0)
    return sums


def expose_groups(out: Exposition, broker: Broker, sums: GroupSums) -> None:
    """Add Kafka's metrics of a group coordinator, and the states of its partitions."""
    metrics = broker.group_coordinator.metrics
    counts = {"classic": sums.classic.total(), "consumer": sums.consumer.total()}
    out.one(
        f"{_MANAGER}_numgroups",
        "gauge",
        "Groups that this broker coordinates.",
        sum(counts.values()),
    )
    for state in GroupState:
        name = f"{_MANAGER}_numgroups{state.value.lower()}"
        meaning = f"Groups of the classic protocol that are {state.value}."
        out.one(name, "gauge", meaning, sums.classic[state.value])
    out.family(
        f"{_COORDINATOR}_group_count",
        "gauge",
        "Groups that this broker coordinates, by protocol.",
        [(label_set(protocol=protocol), count) for protocol, count in counts.items()],
    )
    out.family(
        f"{_COORDINATOR}_consumer_group_count",
        "gauge",
        "Groups of KIP-848's protocol, by state.",
        [(label_set(state=state.lower()), sums.consumer[state]) for state in _CONSUMER_STATES],
    )
    out.one(
        f"{_MANAGER}_numoffsets",
        "gauge",
        "Committed offsets of the groups that this broker coordinates.",
        sums.offsets,
    )
    for name, meaning, value in (
        ("offset_commit_count", "Offsets committed.", metrics.offset_commits),
        ("offset_expiration_count", "Offsets removed by age.", metrics.offset_expirations),
        (
            "offset_deletion_count",
            "Offsets removed by request, or with their group or topic.",
            metrics.offset_deletions,
        ),
    ):
        out.one(f"{_COORDINATOR}_{name}", "counter", meaning, value)
    out.one(
        "fairlead_group_broken_decisions_total",
        "counter",
        "Records of groups that were not written because they break a rule.",
        metrics.broken_decisions,
    )
    times = broker.group_coordinator.runtime.load_times
    average_ms = times.sum_ms / times.loads if times.loads else 0
    for name, meaning, gauge in (
        ("partition_load_time_max", "Slowest load of a partition, ms.", times.max_ms),
        ("partition_load_time_avg", "Average load of a partition, ms.", average_ms),
    ):
        out.one(f"{_COORDINATOR}_{name}", "gauge", meaning, gauge)
    for stage in (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED):
        name = f"{_COORDINATOR}_num_partitions_{stage.value}"
        out.one(name, "gauge", f"Partitions of groups: {stage.value}.", sums.shards[stage])
    _expose_memory(out, broker.group_coordinator)


def _expose_memory(out: Exposition, coordinator: GroupCoordinator) -> None:
    """Add the memory of groups and their members, and the requests of members that wait."""
    out.one(
        "fairlead_parked_group_members",
        "gauge",
        "JoinGroup and SyncGroup requests that wait for other members.",
        coordinator.parked_count,
    )
    out.one(
        "fairlead_group_member_bytes",
        "gauge",
        "Approximate memory of the members of all groups.",
        coordinator.memory.total_bytes,
    )
    offsets = coordinator.offset_memory
    out.one(
        "fairlead_group_offset_bytes",
        "gauge",
        "Approximate memory of all groups and their offsets, without their members.",
        offsets.total_bytes + offsets.undecided_bytes,
    )
