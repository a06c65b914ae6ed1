"""Commits and fetches on real logs: what is written, and when it is answered."""

from pathlib import Path
from typing import Any

import pytest
from group_cluster import NO_DELAY, Call, GroupCluster, commit_code, records_of, run
from replica_cluster import ReplicaCluster

from fairlead_broker.group.removal import expire
from fairlead_broker.handlers.groups.offset_commit import encode_single_reply
from fairlead_model.delta import TopicChanged
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_model.topic import TopicHeader
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fairlead_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic


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
    """G4."""

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
            too_long = "ä" * 4097
            refusals: list[tuple[ErrorCode, dict[str, Any]]] = [
                (ErrorCode.ILLEGAL_GENERATION, {"metadata": too_long, "member": ("m", 3)}),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"topic": "unknown"}),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"partition": 4}),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"partition": -1}),
                (ErrorCode.OFFSET_METADATA_TOO_LARGE, {"metadata": too_long}),
                (ErrorCode.ILLEGAL_GENERATION, {"member": ("m", 3)}),
            ]
            for code, options in refusals:
                assert await groups.committed("g", 1, **options) is code
            assert groups.coordinator().groups == {}
            # Kafka counts in UTF-16, and calls that bytes.
            assert await groups.committed("h", 1, metadata="ä" * 4096) is ErrorCode.NONE
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
            member.broker.group_coordinator.runtime.stop()
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[2])]
            for version in (1, 3):
                request = OffsetFetchRequest(group_id="g", topics=topics)
                reply = groups.call(request, version).reply
                slots = [slot for topic in reply.topics for slot in topic.partitions]
                codes = {slot.error_code for slot in slots} if version == 1 else {reply.error_code}
                assert codes == {ErrorCode.NOT_COORDINATOR}

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


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize("name", ["t", "n" * 126, "n" * 127, "n" * 249])
def test_the_reply_by_hand_has_the_bytes_of_the_encoder(version: int, name: str) -> None:
    slot, topic_id = OffsetCommitResponsePartition(70_000, 0), b"i" * 16
    message = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name, topic_id, [slot])])
    encoded = b"".join(bytes(part) for part in message.encode(version))  # type: ignore[arg-type]
    asked = OffsetCommitRequestTopic(name, topic_id, [OffsetCommitRequestPartition(70_000)])
    assert encode_single_reply(version, asked) == encoded
