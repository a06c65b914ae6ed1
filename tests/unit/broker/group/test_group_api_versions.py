"""The newest versions of the group APIs that are served mean what Kafka means by them."""

import asyncio
from pathlib import Path
from typing import Any

from group_cluster import NO_DELAY, Call, GroupCluster, commit_code
from replica_cluster import ReplicaCluster

from fairlead_broker.group.group_offsets import METADATA_BYTES_MAX
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


def commit(
    groups: GroupCluster, group: str, *, version: int, member: tuple[str, int], broker_id: int = 1
) -> Call:
    partition = OffsetCommitRequestPartition(0, 11, 7, "note")
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    return groups.call(request, version, broker_id=broker_id)


def fetch(groups: GroupCluster, group: str, **options: Any) -> Any:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group, topics=topics, **options)
    (found,) = groups.call(OffsetFetchRequest(groups=[asked]), 9).reply.groups
    return found


def test_commit_9_tells_a_group_that_is_not_there_from_an_old_generation(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for version, expected in (
                (8, ErrorCode.ILLEGAL_GENERATION),
                (9, ErrorCode.GROUP_ID_NOT_FOUND),
            ):
                call = commit(groups, "nobody", version=version, member=("m", 3))
                assert commit_code(call) is expected
                # Of the group of another broker nothing is known.
                elsewhere = commit(groups, "nobody", version=version, member=("m", 3), broker_id=2)
                assert commit_code(elsewhere) is ErrorCode.NOT_COORDINATOR
            alone = commit(groups, "alone", version=9, member=("", -1))
            await cluster.until(lambda: alone.reply is not None)
            assert commit_code(alone) is ErrorCode.NONE
            # The group is there now, without members.
            late = commit(groups, "alone", version=9, member=("m", 3))
            assert commit_code(late) is ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(story())


def test_fetch_9_gives_a_classic_group_its_offsets_whatever_the_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            call = commit(groups, "g", version=9, member=("", -1))
            await cluster.until(lambda: call.reply is not None)
            for options in ({}, {"member_id": "m", "member_epoch": 4}):
                found = fetch(groups, "g", **options)
                assert found.error_code == ErrorCode.NONE
                assert found.topics[0].partitions[0].committed_offset == 11
                missing = fetch(groups, "nobody", **options)
                assert missing.error_code == ErrorCode.NONE
                assert missing.topics[0].partitions[0].committed_offset == -1

    asyncio.run(story())


def test_metadata_that_no_record_can_hold_is_refused_whatever_the_settings(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        settings: dict[str, Any] = {"offset_metadata_max_bytes": "1000000"}
        async with ReplicaCluster(tmp_path, size=1, **settings) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            longest = METADATA_BYTES_MAX * "m"
            assert await groups.committed("g", 5, metadata=longest) is ErrorCode.NONE
            found = groups.fetch("g").topics[0].partitions[0]
            assert (found.committed_offset, found.metadata) == (5, longest)
            refused = await groups.committed("g", 6, metadata=longest + "m")
            assert refused is ErrorCode.OFFSET_METADATA_TOO_LARGE
            assert groups.offset("g") == 5

    asyncio.run(story())
