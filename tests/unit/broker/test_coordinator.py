"""The coordinator of groups on real logs: what is written, and when it is answered."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from group_cluster import Call, GroupCluster, commit_code
from replica_cluster import ReplicaCluster

from fairlead_broker.group.removal import expire, remove_stale, stale_offsets
from fairlead_broker.handlers.offset_commit import encode_single_reply
from fairlead_model.delta import TopicChanged
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_model.topic import TopicHeader, TopicState
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.heartbeat import HeartbeatRequest
from fairlead_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fairlead_wire.messages.list_groups import ListGroupsRequest
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fairlead_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fairlead_wire.records import Record, decode_batch, iter_batches

NO_DELAY = {"group_initial_rebalance_delay_ms": "0"}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def records_of(cluster: ReplicaCluster, broker_id: int = 1) -> list[list[Record]]:
    """The offsets topic, batch by batch."""
    data = cluster.content(broker_id, CONSUMER_OFFSETS)
    return [decode_batch(data, position) for position, _ in iter_batches(data)]


async def lead(cluster: ReplicaCluster, broker_id: int) -> None:
    """The controller makes another broker the coordinator."""
    cluster.change(CONSUMER_OFFSETS, leader=broker_id)
    await asyncio.sleep(0)


def test_what_is_committed_is_fetched_and_survives_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            assert groups.offset("g") == -1
            assert await groups.committed("g", 5, metadata="note") is ErrorCode.NONE
            assert await groups.committed("g", 6, partition=3) is ErrorCode.NONE
            for _ in range(2):
                found = groups.fetch("g").topics[0].partitions[0]
                assert (found.committed_offset, found.committed_leader_epoch) == (5, 7)
                assert found.metadata == "note"
                assert groups.offset("g", partition=3) == 6
                await cluster.stop(1)
                await cluster.start(1)
                await groups.ready()

    run(story())


def test_all_commits_of_a_turn_go_into_one_batch(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            calls = [groups.commit(f"g{number}", number) for number in range(50)]
            assert all(call.reply is None for call in calls)
            await cluster.until(lambda: all(call.reply is not None for call in calls))
            assert [len(batch) for batch in records_of(cluster)] == [50]
            assert [groups.offset(f"g{number}") for number in range(50)] == list(range(50))

    run(story())


def test_batches_stay_below_the_largest_message(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            cluster.publish(
                TopicChanged(
                    TopicHeader(
                        CONSUMER_OFFSETS,
                        cluster.partition(1, CONSUMER_OFFSETS).topic_id,  # type: ignore[arg-type]
                        1,
                        configs={"max.message.bytes": "3000", "cleanup.policy": "compact"},
                    )
                )
            )
            await groups.ready()
            calls = [groups.commit(f"g{number}", 1, metadata="m" * 900) for number in range(7)]
            large = groups.commit("g", 1, metadata="m" * 4000)
            await cluster.until(lambda: all(call.reply is not None for call in [*calls, large]))
            assert {commit_code(call) for call in calls} == {ErrorCode.NONE}
            assert [len(batch) for batch in records_of(cluster)] == [3, 3, 1]
            assert commit_code(large) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE

    run(story())


def test_a_commit_waits_for_the_high_watermark(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            assert await groups.committed("g", 1) is ErrorCode.NONE
            await cluster.stop(3)
            waiting = groups.commit("g", 2)
            await cluster.until(lambda: cluster.partition(2, CONSUMER_OFFSETS).log_end_offset == 2)
            assert waiting.reply is None
            assert groups.offset("g") == 1
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await cluster.until(lambda: waiting.reply is not None)
            assert commit_code(waiting) is ErrorCode.NONE
            assert groups.offset("g") == 2

    run(story())


def test_nothing_completes_under_another_leader_epoch(tmp_path: Path) -> None:
    """R20: what was appended here may be committed later, but not as this coordinator's."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await cluster.stop(3)
            waiting = groups.commit("g", 2)
            joining = groups.join("h")
            await cluster.until(lambda: joining.reply is not None)
            member_id = joining.reply.member_id
            other = groups.join("h")
            assert other.reply is None
            await cluster.until(lambda: cluster.partition(2, CONSUMER_OFFSETS).log_end_offset >= 1)
            await lead(cluster, 2)
            assert commit_code(waiting) is ErrorCode.NOT_COORDINATOR
            assert other.reply.error_code == ErrorCode.NOT_COORDINATOR
            assert (waiting.replies, other.replies) == (1, 1)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await groups.ready(2)
            assert groups.offset("g", broker_id=2) == 2
            assert (waiting.replies, other.replies) == (1, 1)
            beat = groups.call(HeartbeatRequest("h", 1, member_id), 3).reply
            assert beat.error_code == ErrorCode.NOT_COORDINATOR
            assert groups.fetch("g").error_code == ErrorCode.NOT_COORDINATOR
            assert groups.coordinator(1).groups == {}
            assert groups.coordinator(1).parked_count == 0
            # And back again, in a third epoch: what was written in between is there.
            assert await groups.committed("g", 3, broker_id=2) is ErrorCode.NONE
            await lead(cluster, 1)
            await groups.ready(1)
            assert groups.offset("g") == 3

    run(story())


def test_while_the_high_watermark_is_unknown_groups_are_loading(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            assert await groups.committed("g", 1) is ErrorCode.NONE
            await cluster.stop(3)
            waiting = groups.commit("g", 2)
            replica = cluster.partition(2, CONSUMER_OFFSETS)
            await cluster.until(lambda: replica.log_end_offset == 2)
            await cluster.stop(1)
            await lead(cluster, 2)
            await asyncio.sleep(0.05)
            loading = groups.fetch("g", broker_id=2)
            assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            # A member that is alive needs not know.
            beat = groups.call(HeartbeatRequest("g", 1, "m"), 3, broker_id=2).reply
            assert beat.error_code == ErrorCode.NONE
            listed = groups.call(ListGroupsRequest(), 4, broker_id=2).reply
            assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            cluster.change(CONSUMER_OFFSETS, isr=(2,))
            await groups.ready(2)
            assert groups.offset("g", broker_id=2) == 2
            assert waiting.reply is None or commit_code(waiting) is not ErrorCode.NONE

    run(story())


def test_too_few_replicas_refuse_and_slow_ones_time_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, offsets_commit_timeout_ms="150") as cluster:
            groups = GroupCluster(cluster, min_insync_replicas=2)
            await groups.ready()
            await cluster.stop(2)
            await cluster.stop(3)
            code = await groups.committed("g", 1)
            assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert groups.offset("g") == -1
            cluster.change(CONSUMER_OFFSETS, isr=(1,))
            code = await groups.committed("g", 2)
            assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert cluster.partition(1, CONSUMER_OFFSETS).log_end_offset == 1
            # What timed out is in the log, and counts as soon as it is committed.
            await cluster.start(2)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await cluster.until(lambda: groups.offset("g") == 1)

    run(story())


def test_a_commit_is_refused_partition_by_partition(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            too_long = "ä" * 2049
            for code, options in [
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"topic": "unknown"}),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"partition": 4}),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"partition": -1}),
                (ErrorCode.OFFSET_METADATA_TOO_LARGE, {"metadata": too_long}),
                (ErrorCode.ILLEGAL_GENERATION, {"member": ("m", 3)}),
            ]:
                assert await groups.committed("g", 1, **options) is code
            assert groups.coordinator().groups == {}
            member_id, generation = await groups.stable("g")
            for code, member in [
                (ErrorCode.UNKNOWN_MEMBER_ID, ("", -1)),
                (ErrorCode.UNKNOWN_MEMBER_ID, ("nobody", generation)),
                (ErrorCode.ILLEGAL_GENERATION, (member_id, generation - 1)),
                (ErrorCode.NONE, (member_id, generation)),
            ]:
                assert await groups.committed("g", 9, member=member) is code
            empty = groups.call(OffsetCommitRequest(group_id="g"), 8).reply
            assert empty.topics == []

    run(story())


def test_a_retention_asked_for_by_an_old_client_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            call = groups.commit("g", 4)
            request = OffsetCommitRequest(group_id="g", retention_time_ms=0)
            request.topics = groups_topics()
            await cluster.until(lambda: call.reply is not None)
            await groups.ask(request, 2)
            coordinator = groups.coordinator()
            now_ms = cluster.members[1].broker.clock.now_ms()
            group = coordinator.groups["g"]
            expire(coordinator, group, now_ms=now_ms + 10, retention_ms=10**9)
            await cluster.until(lambda: groups.offset("g", partition=1) == -1)
            assert groups.offset("g") == 4

    run(story())


def groups_topics() -> Any:
    return [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(1, 8)])]


def test_groups_are_listed_and_described(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("standalone", 1)
            member_id, _ = await groups.stable("live")
            listed = groups.call(ListGroupsRequest(), 5).reply.groups
            assert {(each.group_id, each.group_state, each.protocol_type) for each in listed} == {
                ("standalone", "Empty", ""),
                ("live", "Stable", "consumer"),
            }
            for states, types, names in [
                (["stable"], [], ["live"]),
                (["Empty", "Dead"], ["Classic"], ["standalone"]),
                ([], ["consumer"], []),
            ]:
                request = ListGroupsRequest(states_filter=states, types_filter=types)
                found = groups.call(request, 5).reply.groups
                assert [each.group_id for each in found] == names
            request = DescribeGroupsRequest(groups=["live", "standalone", "none"])
            live, standalone, missing = groups.call(request, 5).reply.groups
            (member,) = live.members
            assert (live.group_state, live.protocol_data) == ("Stable", "range")
            assert (member.member_id, member.client_host) == (member_id, "/10.0.0.7")
            assert bytes(member.member_assignment) == b"all"
            assert (standalone.group_state, standalone.error_code) == ("Empty", 0)
            assert (missing.group_state, missing.error_code) == ("Dead", 0)
            missing = groups.call(DescribeGroupsRequest(groups=["none"]), 6).reply.groups[0]
            assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(story())


def test_old_fetches_ask_for_one_group_or_for_everything(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 5, partition=2)
            for version in (2, 5, 7):
                reply = groups.call(OffsetFetchRequest(group_id="g", topics=None), version).reply
                (topic,) = reply.topics
                assert [(each.partition_index, each.committed_offset) for each in topic.partitions]
                assert topic.partitions[0].committed_offset == 5
            await cluster.stop(1)
            member = await cluster.start(1)
            member.broker.group_coordinator.stop()
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[2])]
            for version in (1, 3):
                request = OffsetFetchRequest(group_id="g", topics=topics)
                reply = groups.call(request, version).reply
                slots = [slot for topic in reply.topics for slot in topic.partitions]
                codes = {slot.error_code for slot in slots} if version == 1 else {reply.error_code}
                assert codes == {ErrorCode.NOT_COORDINATOR}

    run(story())


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
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            cluster.create("other")
            await groups.ready()
            request = OffsetDeleteRequest(group_id="g", topics=[])
            for name in ("t", "other", "unknown"):
                partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(1)]
                request.topics.append(OffsetDeleteRequestTopic(name, partitions))
            missing = groups.call(request, 0).reply
            assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            member = await groups.stable("g")
            await groups.committed("g", 1, member=member)
            await groups.committed("g", 1, member=member, topic="other")
            reply = await groups.ask(request, 0)
            codes = [[each.error_code for each in topic.partitions] for topic in reply.topics]
            assert codes == [
                [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2,
                [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
                [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
            ]
            assert groups.offset("g") == 1
            assert list(groups.coordinator().groups["g"].offsets.partitions()) == [("t", 0)]

    run(story())


def delete_topic(cluster: ReplicaCluster, name: str) -> None:
    topic = cluster.image.topic(name)
    assert topic is not None
    header = TopicHeader(name, topic.topic_id, len(topic.partitions), state=TopicState.DELETING)
    cluster.publish(TopicChanged(header))


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


def test_a_topic_made_anew_keeps_what_is_committed_for_it(tmp_path: Path) -> None:
    """Offsets of deleted topics go by and by; a commit that comes in between is for the new one."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for partition in range(3):
                await groups.committed("g", 1, partition=partition)
            coordinator = groups.coordinator()
            (stale,) = stale_offsets(coordinator, coordinator.shards[0], {"t"})
            await groups.committed("g", 7, partition=1)
            under_way = groups.commit("g", 8, partition=2)
            remove_stale(coordinator, stale)
            await cluster.until(lambda: under_way.reply is not None)
            assert [groups.offset("g", partition=each) for each in range(3)] == [-1, 7, 8]
            assert coordinator.groups["g"].commits_in_flight == 0

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
            for wait_ms, left in ((0, {"standalone", "live"}), (10_000, {"live"})):
                for group in list(coordinator.groups.values()):
                    expire(coordinator, group, now_ms=now_ms + wait_ms, retention_ms=9_000)
                await asyncio.sleep(0.02)
                assert set(coordinator.groups) == left
            assert groups.offset("live") == 1
            last = records_of(cluster)[-1]
            assert [record.value for record in last] == [None, None]

    run(story())


def test_a_member_that_falls_silent_leaves_by_the_timer(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, group_min_session_timeout_ms="50", **NO_DELAY
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.stable("g", session_ms=60)
            group = groups.coordinator().groups["g"]
            await cluster.until(lambda: group.classic.state.value == "Empty")
            # Its generation is in the log, so a coordinator that comes after knows it.
            await cluster.stop(1)
            await cluster.start(1)
            await groups.ready()
            assert groups.coordinator().groups["g"].classic.generation_id == 2

    run(story())


def test_whoever_is_given_an_id_and_never_comes_back_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, group_min_session_timeout_ms="50", **NO_DELAY
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            call = groups.join("g", session_ms=60, version=5)
            assert call.reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert call.reply.member_id.startswith("client-")
            assert "g" in groups.coordinator().groups
            await cluster.until(lambda: "g" not in groups.coordinator().groups)
            assert records_of(cluster) == []

    run(story())


def test_a_parked_member_whose_connection_closes_is_not_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, group_initial_rebalance_delay_ms="100"
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            gone, stays = groups.join("g"), groups.join("g")
            assert groups.coordinator().parked_count == 2
            gone.disconnect()
            assert groups.coordinator().parked_count == 1
            await cluster.until(lambda: stays.reply is not None)
            assert gone.reply is None
            assert groups.coordinator().parked_count == 0

    run(story())


@pytest.mark.parametrize(
    ("group", "session_ms", "member_id", "code"),
    [
        ("", 10_000, "", ErrorCode.INVALID_GROUP_ID),
        ("g", 5_999, "", ErrorCode.INVALID_SESSION_TIMEOUT),
        ("g", 1_800_001, "", ErrorCode.INVALID_SESSION_TIMEOUT),
        ("g", 10_000, "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_cannot_be_makes_no_group(
    tmp_path: Path, group: str, session_ms: int, member_id: str, code: ErrorCode
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            reply = groups.join(group, member_id, session_ms=session_ms).reply
            assert (reply.error_code, reply.member_id) == (code, member_id)
            assert groups.coordinator().groups == {}

    run(story())


def test_members_leave_one_by_one_or_together(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            member_id, _ = await groups.stable("g")
            unknown = groups.call(LeaveGroupRequest("g", "nobody"), 1).reply
            assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            no_group = groups.call(LeaveGroupRequest("none", "nobody"), 0).reply
            assert no_group.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            request = LeaveGroupRequest(
                "g", members=[MemberIdentity(member_id), MemberIdentity("nobody")]
            )
            codes = [each.error_code for each in groups.call(request, 4).reply.members]
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
            assert groups.coordinator().groups["g"].classic.state.value == "Empty"

    run(story())


def test_groups_of_several_segments_are_loaded_in_pieces(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, offsets_load_buffer_size="2000", log_segment_bytes="16384"
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for turn in range(20):
                calls = [groups.commit(f"g{number}", turn) for number in range(30)]
                await cluster.until(lambda calls=calls: all(each.reply for each in calls))
            log = cluster.partition(1, CONSUMER_OFFSETS).log
            assert len(log.segments) > 1
            await cluster.stop(1)
            await cluster.start(1)
            await groups.ready()
            assert [groups.offset(f"g{number}") for number in range(30)] == [19] * 30

    run(story())


def test_a_damaged_log_is_not_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            await cluster.stop(1, clean=True)
            path = tmp_path / f"broker-1/{CONSUMER_OFFSETS}-0/{0:020d}.log"
            data = bytearray(path.read_bytes())
            data[70] ^= 1
            path.write_bytes(data)
            await cluster.start(1)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            await cluster.until(lambda: groups.fetch("g").error_code == code)

    run(story())


def test_a_call_is_answered_once(tmp_path: Path) -> None:
    """The harness itself: a second answer to a request would be seen."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            calls: list[Call] = [groups.commit("g", number) for number in range(5)]
            await cluster.until(lambda: all(call.reply is not None for call in calls))
            assert [call.replies for call in calls] == [1] * 5

    run(story())


@pytest.mark.parametrize("version", range(2, 9))
@pytest.mark.parametrize("name", ["t", "n" * 126, "n" * 127, "n" * 249])
def test_the_reply_by_hand_has_the_bytes_of_the_encoder(version: int, name: str) -> None:
    slot = OffsetCommitResponsePartition(70_000, 0)
    message = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=name, partitions=[slot])])
    encoded = b"".join(bytes(part) for part in message.encode(version))  # type: ignore[arg-type]
    assert encode_single_reply(version, name, 70_000) == encoded
