"""How offsets and groups go from a real log: by request, with their topic, with time."""

import asyncio
from pathlib import Path

from group_cluster import NO_DELAY, GroupCluster, commit_code, delete_topic, records_of, run
from group_protocols import classic_of
from replica_cluster import ReplicaCluster

from fairlead_broker.group.removal import expire
from fairlead_broker.group.stale_offsets import RETRY_S, StaleOffsets
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest
from fairlead_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


def test_an_empty_group_is_deleted_with_its_offsets(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("old", 1)
            await groups.committed("old", 1, partition=2)
            await groups.stable("live")
            under_way = groups.commit("old", 2, partition=3)
            request = DeleteGroupsRequest(groups_names=["old", "live", "none"])
            reply = await groups.ask(request, 2)
            assert [(each.group_id, each.error_code) for each in reply.results] == [
                ("old", ErrorCode.NONE),
                ("live", ErrorCode.NON_EMPTY_GROUP),
                ("none", ErrorCode.GROUP_ID_NOT_FOUND),
            ]
            assert commit_code(under_way) is ErrorCode.NONE
            assert "old" not in groups.coordinator().groups
            for _ in range(2):
                assert [groups.offset("old", partition=each) for each in (0, 2, 3)] == [-1] * 3
                assert set(groups.coordinator().groups) == {"live"}
                await cluster.stop(1)
                await cluster.start(1)
                await groups.ready()

    run(story())


def test_offsets_of_consumed_topics_are_not_deleted(tmp_path: Path) -> None:
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            cluster.create("other")
            await groups.ready()
            request = OffsetDeleteRequest(group_id="g", topics=[])
            for name in ("t", "other", "unknown"):
                partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(1)]
                request.topics.append(OffsetDeleteRequestTopic(name, partitions))
            request.topics[0].partitions.append(OffsetDeleteRequestPartition(99))
            missing = groups.call(request, 0).reply
            assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            member = await groups.stable("g")
            await groups.committed("g", 1, member=member)
            await groups.committed("g", 1, member=member, topic="other")
            reply = await groups.ask(request, 0)
            codes = [[each.error_code for each in topic.partitions] for topic in reply.topics]
            assert codes == [
                [subscribed, subscribed, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
                [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
                [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
            ]
            assert groups.offset("g") == 1
            assert list(groups.coordinator().groups["g"].offsets.partitions()) == [("t", 0)]

    run(story())


def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            cluster.create("other")
            await groups.ready()
            await groups.committed("g", 1)
            await groups.committed("g", 1, topic="other")
            under_way = groups.commit("g", 2, partition=1)
            delete_topic(cluster, "t")
            offsets = groups.coordinator().groups["g"].offsets
            await cluster.until(lambda: list(offsets.partitions()) == [("other", 0)])
            assert commit_code(under_way) is ErrorCode.NONE
            # While nobody coordinated them: found out when they are loaded.
            await cluster.stop(1)
            delete_topic(cluster, "other")
            await cluster.start(1)
            await groups.ready()
            offsets = groups.coordinator().groups["g"].offsets
            await cluster.until(lambda: not offsets)

    run(story())


def test_offsets_of_a_deleted_topic_go_once_they_can(tmp_path: Path) -> None:
    """Too few replicas are in sync when the topic goes: its offsets are not those of the next."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster, min_insync_replicas=2)
            cluster.create("other")
            await groups.ready()
            await groups.committed("g", 5)
            await groups.committed("g", 5, partition=1)
            await groups.committed("g", 5, topic="other")
            await cluster.stop(2)
            under_way = groups.commit("g", 6, topic="other")
            await asyncio.sleep(0)
            cluster.change(CONSUMER_OFFSETS, isr=(1,))
            delete_topic(cluster, "t")
            delete_topic(cluster, "other")
            cluster.create("t", partitions=4)
            await asyncio.sleep(0.1)
            kept = groups.coordinator().groups["g"].offsets.find("t", 0)
            assert kept is not None
            assert kept.offset == 5
            assert groups.offset("g") == -1, "nobody is told of what is to go"
            await cluster.start(2)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await groups.committed("g", 7, partition=1)
            offsets = groups.coordinator().groups["g"].offsets
            await cluster.until(lambda: list(offsets.partitions()) == [("t", 1)])
            assert under_way.replies == 1
            assert groups.offset("g", partition=1) == 7

    run(story())


def test_offsets_on_their_way_to_a_deleted_topic_are_not_those_of_the_next(tmp_path: Path) -> None:
    """They come in after the next topic of that name was made: their tombstones failed before."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster, min_insync_replicas=2)
            await groups.ready()
            for partition in range(3):
                await groups.committed("g", 5, partition=partition)
            await cluster.stop(2)
            for offset, partition in ((6, 0), (7, 0), (6, 1), (6, 3)):
                groups.commit("g", offset, partition=partition)
            await asyncio.sleep(0)
            cluster.change(CONSUMER_OFFSETS, isr=(1,))
            delete_topic(cluster, "t")
            cluster.create("t", partitions=4)
            # Nothing can be removed now, and is tried again while these wait.
            await asyncio.sleep(1.2 * RETRY_S)
            await cluster.start(2)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await groups.committed("g", 8, partition=1)
            offsets = groups.coordinator().groups["g"].offsets
            await cluster.until(lambda: list(offsets.partitions()) == [("t", 1)])
            assert groups.offset("g", partition=1) == 8

    run(story())


class BusyClock:
    """While it is busy, every slice of time is used up before it begins."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.is_busy = True

    def monotonic_ms(self) -> int:
        self.now_ms += 1_000 * self.is_busy
        return self.now_ms


def test_a_topic_made_anew_keeps_what_is_committed_for_it(tmp_path: Path) -> None:
    """Offsets of deleted topics go by and by; a commit that comes in between is for the new one."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for partition in range(3):
                await groups.committed("g", 1, partition=partition)
            coordinator = groups.coordinator()
            clock = BusyClock()
            there = coordinator.consumer_host.image.names.__contains__
            stale = StaleOffsets(coordinator.runtime, clock, coordinator.metrics, there)  # type: ignore[arg-type]
            stale.forget_topics([coordinator.groups["g"]], {"t"})
            await groups.committed("g", 7, partition=1)
            under_way = groups.commit("g", 8, partition=2)
            clock.is_busy = False
            await cluster.until(lambda: groups.offset("g") == -1)
            await cluster.until(lambda: under_way.reply is not None)
            assert [groups.offset("g", partition=each) for each in range(3)] == [-1, 7, 8]
            assert coordinator.groups["g"].commits_in_flight == 0

    run(story())


def test_offsets_of_a_group_with_a_long_name_go(tmp_path: Path) -> None:
    """Each of their tombstones has the name, and all must fit into a batch."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            cluster.create("wide", partitions=50)
            await groups.ready()
            name = 30_000 * "g"
            for partition in range(50):
                code = await groups.committed(name, 1, topic="wide", partition=partition)
                assert code is ErrorCode.NONE
            reply = await groups.ask(DeleteGroupsRequest(groups_names=[name]), 2)
            assert reply.results[0].error_code == ErrorCode.NONE
            assert name not in groups.coordinator().groups

    run(story())


def test_expired_offsets_and_their_empty_group_go(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("standalone", 1)
            member = await groups.stable("live")
            await groups.committed("live", 1, member=member)
            coordinator = groups.coordinator()
            now_ms = cluster.members[1].broker.clock.now_ms()
            for group in list(coordinator.groups.values()):
                expire(coordinator, group, now_ms=now_ms, retention_ms=9_000)
            # Whatever that had written would be settled before a commit that comes after it.
            await groups.committed("live", 1, member=member)
            assert set(coordinator.groups) == {"standalone", "live"}
            for group in list(coordinator.groups.values()):
                expire(coordinator, group, now_ms=now_ms + 10_000, retention_ms=9_000)
            await cluster.until(lambda: set(coordinator.groups) == {"live"})
            assert groups.offset("live") == 1
            last = records_of(cluster)[-1]
            assert [record.value for record in last] == [None, None]

    run(story())


def test_a_commit_after_a_slow_deletion_stays(tmp_path: Path) -> None:
    """The tombstone took longer than the answer, and meanwhile the group was committed to."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, offsets_commit_timeout_ms="1000") as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            await cluster.stop(3)
            deletion = groups.call(DeleteGroupsRequest(groups_names=["g"]), 2)
            await cluster.until(lambda: deletion.reply is not None)
            code = deletion.reply.results[0].error_code
            assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            commit = groups.commit("g", 2)
            await asyncio.sleep(0)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await cluster.until(lambda: commit.reply is not None)
            assert commit_code(commit) is ErrorCode.NONE
            assert groups.offset("g") == 2

    run(story())


def test_a_group_that_lived_on_after_a_slow_deletion_stays(tmp_path: Path) -> None:
    """The log has a record of it behind the tombstone."""

    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, offsets_commit_timeout_ms="1000", **NO_DELAY
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            await cluster.stop(3)
            deletion = groups.call(DeleteGroupsRequest(groups_names=["g"]), 2)
            await cluster.until(lambda: deletion.reply is not None)
            joined = groups.join("g").reply
            leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(joined.member_id)])
            groups.call(leaving, 3)
            await asyncio.sleep(0)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            replica = cluster.partition(1, CONSUMER_OFFSETS)
            await cluster.until(lambda: replica.high_watermark == replica.log_end_offset)
            assert classic_of(groups.coordinator().groups["g"]).generation_id == 2
            assert groups.offset("g") == -1

    run(story())
