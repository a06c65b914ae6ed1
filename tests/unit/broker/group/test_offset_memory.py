"""How much the committed offsets of all groups may make a coordinator hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_cluster import NO_DELAY, GroupCluster, commit_code, lead, run
from replica_cluster import ReplicaCluster
from transactional_groups import TransactionalGroups

from fairlead_broker.group import offset_memory
from fairlead_broker.group.group_offsets import topic_bytes
from fairlead_broker.limits import (
    COMMITTED_OFFSET_BYTES,
    GROUP_OVERHEAD_BYTES,
    STAGED_OFFSET_BYTES,
)
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NONE = ErrorCode.NONE
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE
VALUE = 42
OFFSET = COMMITTED_OFFSET_BYTES + VALUE
GROUP = GROUP_OVERHEAD_BYTES + 2 + topic_bytes("g0", "t")
"""A group with a name of two letters, and a topic."""


def test_offsets_beyond_the_memory_are_refused_and_those_inside_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many groups with an offset and metadata for each partition are bounded only together."""
    monkeypatch.setattr(offset_memory, "GROUP_OFFSETS_BYTES_MAX", 2 * GROUP + 3 * OFFSET + 50)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            memory = groups.coordinator().offset_memory
            assert await groups.committed("g0", 1) is NONE
            assert await groups.committed("g0", 2, partition=1) is NONE
            assert memory.total_bytes == GROUP + 2 * OFFSET
            assert await groups.committed("g1", 1) is NONE
            assert memory.total_bytes == 2 * GROUP + 3 * OFFSET
            assert await groups.committed("g1", 1, partition=1) is FULL
            assert await groups.committed("g2", 1) is FULL
            assert "g2" not in groups.coordinator().groups
            assert await groups.committed("g0", 3, metadata="m" * 60) is FULL
            assert await groups.committed("g0", 3, metadata="m" * 50) is NONE
            assert await groups.committed("g0", 4, metadata="m" * 50) is NONE, "no more than before"
            assert groups.offset("g0") == 4
            assert await groups.committed("g0", 5) is NONE
            assert (memory.total_bytes, memory.undecided_bytes) == (2 * GROUP + 3 * OFFSET, 0)
            deleted = await groups.ask(DeleteGroupsRequest(["g0"]), 2)
            assert deleted.results[0].error_code == NONE
            assert memory.total_bytes == GROUP + OFFSET
            assert await groups.committed("g1", 1, partition=1) is NONE

    run(story())


def test_the_memory_is_counted_anew_by_the_next_coordinator(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for partition in range(3):
                assert await groups.committed("g0", 1, partition=partition) is NONE
            held = GROUP + 3 * OFFSET
            assert groups.coordinator().offset_memory.total_bytes == held
            await lead(cluster, 2)
            await groups.ready(2)
            assert groups.coordinator().offset_memory.total_bytes == 0
            assert groups.coordinator(2).offset_memory.total_bytes == held

    run(story())


def test_commits_that_wait_for_replicas_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their client may be gone, or commit on: the bytes stay until the replicas have them."""
    monkeypatch.setattr(offset_memory, "COMMITS_UNDECIDED_BYTES_MAX", 2 * OFFSET)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await cluster.stop(2)
            await cluster.stop(3)
            waiting = [groups.commit("g0", number) for number in range(2)]
            memory = groups.coordinator().offset_memory
            assert memory.undecided_bytes == 2 * OFFSET
            assert commit_code(groups.commit("g0", 2)) is FULL
            assert all(each.reply is None for each in waiting)
            await cluster.start(2)
            await cluster.start(3)
            await cluster.until(lambda: all(each.reply is not None for each in waiting))
            assert memory.undecided_bytes == 0
            assert await groups.committed("g0", 2) is NONE

    run(story())


def test_offsets_staged_in_transactions_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = STAGED_OFFSET_BYTES + VALUE + len("note")
    monkeypatch.setattr(offset_memory, "COMMITS_UNDECIDED_BYTES_MAX", 2 * staged)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            memory = groups.coordinator().offset_memory
            for partition in range(2):
                assert await groups.staged("g0", 1, partition=partition) is NONE
            assert memory.undecided_bytes == 2 * staged
            assert await groups.staged("g0", 1, partition=2) is FULL
            marker = groups.end(is_commit=True)
            await cluster.until(lambda: marker.code is NONE)
            assert memory.undecided_bytes == 0
            assert memory.total_bytes == GROUP + 2 * (OFFSET + len("note"))
            assert await groups.staged("g0", 1, partition=2, producer=(8, 0)) is NONE

    run(story())
