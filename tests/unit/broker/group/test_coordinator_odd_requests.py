"""What no well-behaved client sends, and what a coordinator must survive all the same."""

from pathlib import Path
from typing import Any

import pytest
from group_cluster import NO_DELAY, Call, GroupCluster, run
from replica_cluster import ReplicaCluster

from fairlead_broker.coordinator.record_batching import build_batch, encode_body
from fairlead_broker.group.group_offsets import encode_commit
from fairlead_broker.group.records.classic_records import OffsetKey, encode_key
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

RETENTION_MAX_MS = 2**63 - 1
STRING_MAX = 32_767


def join(groups: GroupCluster, group: str, **fields: Any) -> Call:
    """A join of version 9 with these fields."""
    fields.setdefault("protocols", [JoinGroupRequestProtocol("range", b"")])
    fields.setdefault("protocol_type", "consumer")
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=60_000, **fields
    )
    return groups.call(request, 9)


@pytest.mark.parametrize("retention_ms", [RETENTION_MAX_MS, -5, 0])
def test_any_retention_can_be_asked_for(tmp_path: Path, retention_ms: int) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            slot = OffsetCommitRequestPartition(0, 8)
            request = OffsetCommitRequest(
                group_id="g",
                retention_time_ms=retention_ms,
                topics=[OffsetCommitRequestTopic(name="t", partitions=[slot])],
            )
            reply = await groups.ask(request, 2)
            assert reply.topics[0].partitions[0].error_code == ErrorCode.NONE
            assert groups.offset("g") == 8

    run(story())


def test_the_longest_instance_id_is_a_member_like_any_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            instance = "i" * STRING_MAX
            joined = join(groups, "g", group_instance_id=instance).reply
            assert joined.error_code == ErrorCode.NONE
            assert joined.member_id.startswith("iii")
            request = SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(joined.member_id, b"all")],
            )
            synced = await groups.ask(request, 5)
            assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"all")

    run(story())


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "version", "code"),
    [
        (None, None, 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", None, 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, "range", 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("connect", "range", 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "range", 5, ErrorCode.NONE),
        (None, None, 4, ErrorCode.NONE),
    ],
)
def test_a_sync_names_what_was_agreed_from_version_5_on(
    tmp_path: Path,
    protocol_type: str | None,
    protocol_name: str | None,
    version: int,
    code: ErrorCode,
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            member_id, generation = await groups.stable("g")
            request = SyncGroupRequest(
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
            )
            assert groups.call(request, version).reply.error_code == code

    run(story())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": [JoinGroupRequestProtocol(f"p{each}", b"") for each in range(1_001)]},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"protocols": [JoinGroupRequestProtocol("p" * 30_000, b"")] * 40},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"protocols": [JoinGroupRequestProtocol("range", bytes(2**20 + 1))]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_refused_join_leaves_no_group_behind(
    tmp_path: Path, fields: dict[str, Any], code: ErrorCode
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            assert join(groups, "g", **fields).reply.error_code == code
            assert groups.coordinator().groups == {}

    run(story())


def test_nobody_but_the_coordinator_writes_its_topic(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            key = encode_key(OffsetKey("g", "t", 0))
            batch = build_batch([encode_body(key, encode_commit(7, -1, b"", 0))], timestamp_ms=0)
            data = PartitionProduceData(0, memoryview(batch))
            topic = TopicProduceData(name=CONSUMER_OFFSETS, partition_data=[data])
            reply = groups.call(
                ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 9
            ).reply
            (refused,) = reply.responses[0].partition_responses
            assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert cluster.partition(1, CONSUMER_OFFSETS).log_end_offset == 0

    run(story())


@pytest.mark.parametrize(
    ("protocol_type", "codes"),
    [
        ("consumer", (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)),
        ("connect", (ErrorCode.NON_EMPTY_GROUP, None)),
    ],
)
def test_offsets_stay_where_nobody_can_tell_what_members_read(
    tmp_path: Path, protocol_type: str, codes: tuple[ErrorCode, ErrorCode | None]
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            odd = [JoinGroupRequestProtocol("odd", b"?")]
            join(groups, "g", group_instance_id="i", protocol_type=protocol_type, protocols=odd)
            slots = [OffsetDeleteRequestPartition(0)]
            request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", slots)])
            reply = groups.call(request, 0).reply
            found = [each.error_code for topic in reply.topics for each in topic.partitions]
            assert (reply.error_code, *found) == tuple(each for each in codes if each is not None)

    run(story())
