"""Offsets of topics that are named by their ids (OffsetCommit 10, OffsetFetch 10)."""

from pathlib import Path
from typing import Any

from denying import Denying
from group_cluster import Call, GroupCluster, delete_topic, run
from replica_cluster import ReplicaCluster

from fairlead_broker.authorization import ResourceType
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

NOBODYS = b"n" * 16


def commit(*partitions: tuple[bytes, int, int]) -> OffsetCommitRequest:
    """Topic id, partition and offset of each."""
    request = OffsetCommitRequest(group_id="g")
    request.topics = [
        OffsetCommitRequestTopic("", topic_id, [OffsetCommitRequestPartition(index, offset)])
        for topic_id, index, offset in partitions
    ]
    return request


def told(reply: Any) -> list[tuple[bytes, int, int]]:
    """Topic id, partition and error of each."""
    return [
        (bytes(topic.topic_id), each.partition_index, each.error_code)
        for topic in reply.topics
        for each in topic.partitions
    ]


def test_offsets_are_committed_and_fetched_by_id(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            known = cluster.members[1].broker.image.topic("t")
            assert known is not None
            topic_id = bytes(known.topic_id)

            async def ask(*partitions: tuple[bytes, int, int]) -> list[tuple[bytes, int, int]]:
                return told(await groups.ask(commit(*partitions), 10))

            def fetch(*topic_ids: bytes, version: int = 10) -> Any:
                topics = [OffsetFetchRequestTopics("", each, [0]) for each in topic_ids] or None
                group = OffsetFetchRequestGroup("g", topics=topics)
                reply = groups.call(OffsetFetchRequest(groups=[group]), version).reply
                return [
                    (bytes(topic.topic_id), each.committed_offset, each.error_code)
                    for topic in reply.groups[0].topics
                    for each in topic.partitions
                ]

            assert await ask((topic_id, 0, 5)) == [(topic_id, 0, ErrorCode.NONE)]
            assert groups.offset("g") == 5
            assert await ask((NOBODYS, 0, 6), (topic_id, 0, 7), (topic_id, 99, 8)) == [
                (NOBODYS, 0, ErrorCode.UNKNOWN_TOPIC_ID),
                (topic_id, 0, ErrorCode.NONE),
                (topic_id, 99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            assert await ask((NOBODYS, 0, 6)) == [(NOBODYS, 0, ErrorCode.UNKNOWN_TOPIC_ID)]
            # What is refused stands behind the rest, whatever the order of the question.
            assert fetch(NOBODYS, topic_id) == [
                (topic_id, 7, ErrorCode.NONE),
                (NOBODYS, -1, ErrorCode.UNKNOWN_TOPIC_ID),
            ]
            assert fetch() == [(topic_id, 7, ErrorCode.NONE)]
            delete_topic(cluster, "t")
            assert fetch() == []
            assert fetch(topic_id) == [(topic_id, -1, ErrorCode.UNKNOWN_TOPIC_ID)]

    run(story())


def test_a_right_that_has_ended_is_told_by_the_id_that_was_used(tmp_path: Path) -> None:
    """A consumer of KIP-848 names ids. Of an unknown one it waits for a commit, and finds none."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            broker = cluster.members[1].broker
            known = broker.image.topic("t")
            assert known is not None
            topic_id = bytes(known.topic_id)
            wanted = OffsetFetchRequestTopics("", topic_id, [0])
            group = OffsetFetchRequestGroup("g", topics=[wanted])

            def ask(authorizer: Denying, used: set[bytes]) -> list[int]:
                requests = [commit((topic_id, 0, 5)), OffsetFetchRequest(groups=[group])]
                calls = [
                    Call(broker, each, 10, authorizer=authorizer, used_topic_ids=used)
                    for each in requests
                ]
                replies = [calls[0].reply, calls[1].reply.groups[0]]
                return [code for reply in replies for _, _, code in told(reply)]

            used: set[bytes] = set()
            revoked = Denying((ResourceType.TOPIC, "t"))
            assert ask(revoked, used) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
            Call(
                broker,
                OffsetFetchRequest(groups=[group]),
                10,
                authorizer=Denying(),
                used_topic_ids=used,
            )
            assert ask(revoked, used) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2

    run(story())
